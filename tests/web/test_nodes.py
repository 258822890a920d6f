"""Runs on a cluster, in a real browser: nodes are named, counted and told of in the log.

The server is a true one in this process; its cluster and the log of its run are made up, because a
true cluster of three nodes would take minutes to start.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import uvicorn

from rookery.config.reading import build
from rookery.control.check import check_config
from rookery.control.home import Home
from rookery.control.settings import ServerSettings, Settings
from rookery.control.tokens import TokenStore
from rookery.launchers.ray.link import LinkDown
from rookery.messages import WorkerStarted
from rookery.server.app import build_app
from rookery.testing.owner import control_plane_of
from tests.server.clusters import GONE, LOST, OWNER, SECOND, THIRD, WAITS, FakeCluster, spread
from tests.web.axe import Axe
from tests.web.browsing import SHORT, a_tab, enter, expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

RUN = "wide"
READY_S = 60.0
PHONE = {"width": 390, "height": 844}


class Server(NamedTuple):
    url: str
    token: str
    home: Home
    cluster: FakeCluster


@pytest.fixture
def server(home: Path) -> Iterator[Server]:
    with serving(home) as made:
        yield made


@contextlib.contextmanager
def serving(path: Path) -> Iterator[Server]:
    """A server on a made-up cluster, and a run whose log says that it is on three nodes of it."""
    cluster = FakeCluster()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = Settings(server=ServerSettings(port=listener.getsockname()[1]))
        with control_plane_of(path, settings, ask_nodes=cluster) as plane:
            config = build(SHORT)
            plane.home.create(config, check_config(plane.home, config), author="ann", run=RUN)
            lease = plane.home.take_lease(RUN)
            assert lease is not None
            spread(plane.home, RUN, os.getpid())
            tokens = TokenStore(path / "tokens.json")
            token = tokens.create("read", None, "reader").token
            app = build_app(plane, tokens, settings, make_mcp=None)
            with contextlib.closing(lease), answering(app, listener):
                url = f"http://127.0.0.1:{settings.server.port}"
                yield Server(url, token, plane.home, cluster)


@contextlib.contextmanager
def answering(app: Any, listener: socket.socket) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],), name="server")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(READY_S)
        assert not thread.is_alive()


def worker(page: Page, name: str) -> Locator:
    return page.locator(f'[data-worker="{name}"]')


def cluster(page: Page) -> Locator:
    return page.locator('[data-what="cluster"]')


def test_a_worker_shows_its_node_or_what_it_waits_for(page: Page, server: Server) -> None:
    enter(page, server, f"/runs/{RUN}")
    expect(worker(page, "learner-0").locator('[data-what="node"]')).to_have_text(f"on {SECOND}")
    expect(worker(page, "actor-2").locator('[data-what="node"]')).to_have_text(f"on {THIRD}")
    expect(worker(page, "actor-3")).to_contain_text("alive")
    expect(worker(page, "actor-3").locator('[data-what="node"]')).to_have_count(0)
    expect(worker(page, "actor-4")).to_contain_text("waits")
    expect(worker(page, "actor-4")).not_to_contain_text("ended")
    part = page.get_by_role("region", name="Workers", exact=True)
    expect(part.locator('[data-what="waits"]')).to_have_text(f"waits for {WAITS}")
    expect(part).to_contain_text(GONE)
    expect(part.locator('[data-what="nodes"]')).to_have_text(
        f"3 nodes: its owner's machine 1 actor, {SECOND} learner and 1 actor, {THIRD} 2 actors"
    )
    expect(part.locator('[data-what="machine"]')).to_contain_text("The server's machine")
    table = page.get_by_role("region", name="All workers")
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")  # all of it is seen

    found = {"run": RUN, "kind": "actor", "index": 4, "incarnation": 2}
    server.home.record(WorkerStarted(**found, pid=402, host=SECOND))
    expect(worker(page, "actor-4").locator('[data-what="node"]')).to_have_text(f"on {SECOND}")
    expect(part.locator('[data-what="waits"]')).to_have_count(0)


def test_the_log_tells_of_nodes_in_plain_words(page: Page, server: Server) -> None:
    enter(page, server, f"/runs/{RUN}/log")
    events = page.get_by_role("region", name="Events")
    expect(events).to_contain_text(f"learner started on {SECOND} as process 200")
    expect(events).to_contain_text(f"actor 3 started as process {os.getpid()}")
    expect(events).to_contain_text(f"actor 4 ended: {GONE}")
    expect(events).to_contain_text(f"actor 4 waits for {WAITS}")


def test_the_list_counts_the_nodes_of_the_cluster(page: Page, server: Server) -> None:
    enter(page, server)
    expect(cluster(page).locator("summary")).to_have_text("3 nodes, 8 CPUs")
    cluster(page).locator("summary").click()
    expect(cluster(page).locator("li")).to_have_text(
        [
            f"{OWNER} head, 2 CPUs: {RUN} 1 actor",
            f"{SECOND} box-b, 4 CPUs: {RUN} learner and 1 actor",
            f"{THIRD} box-c, 2 CPUs: {RUN} 2 actors",
            f"{LOST} box-z, 16 CPUs: lost",
        ]
    )
    server.cluster.error = LinkDown("the Ray cluster 10.0.0.1:6379: its driver ended")
    expect(cluster(page)).to_have_text("the Ray cluster 10.0.0.1:6379: its driver ended")
    server.cluster.error = None
    expect(cluster(page).locator("summary")).to_have_text("3 nodes, 8 CPUs")


def test_a_local_server_counts_no_nodes(page: Page, served: Any) -> None:
    with page.expect_response(lambda answer: answer.url.endswith("/api/v1/nodes")) as asked:
        enter(page, served)
    assert asked.value.json()["launcher"] == "local"
    expect(page.get_by_text("No runs yet")).to_be_visible()
    expect(cluster(page)).to_have_count(0)


def test_axe_finds_nothing_where_nodes_are_shown(page: Page, server: Server) -> None:
    checker = Axe(page)
    enter(page, server)
    cluster(page).locator("summary").click()
    expect(cluster(page).locator("li")).to_have_count(4)
    checker.look("the nodes of a cluster")
    page.goto(f"{server.url}/#/runs/{RUN}")
    expect(page.locator('[data-what="waits"]')).to_be_visible()
    checker.look("workers on nodes")
    assert not checker.wrong, "\n".join(checker.wrong)
    assert checker.checked == 2 * 2


def test_nodes_fit_a_phone(browser: Browser, server: Server) -> None:
    with a_tab(browser, viewport=PHONE, has_touch=True, is_mobile=True) as phone:
        enter(phone, server)
        cluster(phone).locator("summary").tap()
        expect(cluster(phone).locator("li")).to_have_count(4)
        assert fits(phone)
        phone.goto(f"{server.url}/#/runs/{RUN}")
        expect(phone.locator('[data-what="waits"]')).to_be_visible()
        assert fits(phone)


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
