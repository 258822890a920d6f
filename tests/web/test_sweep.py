"""Sweeps in a real browser: the list, one with its charts and its table, live, by keyboard.

The server is a true one in this process; who trains and judges the trials is scripted.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from rookery.control.run_state import RunState
from rookery.control.settings import ServerSettings, Settings
from rookery.control.tokens import TokenStore
from rookery.server.app import build_app
from rookery.testing.owner import control_plane_of
from rookery.tuning.spec import SweepFiles
from tests.tuning.scripted import ScriptedSweep, scripted_sweep
from tests.web.axe import Axe
from tests.web.browsing import a_tab, enter, expect
from tests.web.test_nodes import PHONE, answering, fits

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

TRIALS = 8
LOOK_MS = 3000  # between two looks of the page
KIND, RATE, CLIP = "algorithm.kind", "algorithm.learning_rate", "algorithm.clip"
SEARCH = {
    KIND: "ppo|impala",
    RATE: "log:1e-5..1e-1",
    f"{CLIP} if {KIND}=ppo": "0.1..0.3",
    "network.hidden": [[32], [64, 64]],
}


class Shown(NamedTuple):
    url: str
    token: str
    sweep: ScriptedSweep

    @property
    def place(self) -> str:
        return f"/sweeps/{self.sweep.spec.id}"


@contextlib.contextmanager
def showing(sweep: ScriptedSweep) -> Iterator[Shown]:
    path = sweep.home.path
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = Settings(server=ServerSettings(port=listener.getsockname()[1]))
        with control_plane_of(path, settings, owned=False) as plane:
            tokens = TokenStore(path / "tokens.json")
            token = tokens.create("read", None, "reader").token
            app = build_app(plane, tokens, settings, make_mcp=None)
            with answering(app, listener):
                yield Shown(f"http://127.0.0.1:{settings.server.port}", token, sweep)


def ends(state: RunState) -> str:
    return "failed" if state.config["config"]["algorithm"]["learning_rate"] > 0.02 else "finished"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A sweep at its end: some trials failed, and not all have every key."""
    path: Path = tmp_path_factory.mktemp("sweep") / "home"
    asked = {"sampler": "random", "trials": TRIALS}
    with scripted_sweep(path, search=SEARCH, ends=ends, **asked) as sweep:
        sweep.to_its_end()
        with showing(sweep) as made:
            yield made


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Trials").locator("tbody tr")


def numbers(page: Page, column: int) -> list[float]:
    """Of a column of the table, those that are there."""
    texts = rows(page).locator(f"td:nth-child({column})").all_inner_texts()
    return [float(text) for text in texts if text[-1].isdigit()]


def test_the_way_from_the_runs_to_a_sweep_and_back(page: Page, shown: Shown) -> None:
    enter(page, shown)
    page.get_by_role("link", name="1 sweep", exact=True).click()
    row = page.locator(f'[data-sweep="{shown.sweep.spec.id}"]')
    expect(row).to_contain_text(re.compile(rf"finished\s*{TRIALS} / {TRIALS}"))
    row.get_by_role("link").click()
    expect(page).to_have_title(re.compile(shown.sweep.spec.id))
    best = page.get_by_role("region", name="Best trial")
    expect(best).to_contain_text(f"rookery sweep show {shown.sweep.spec.id} --best best.yaml")
    best.get_by_role("link").click()
    page.get_by_role("link", name="its sweep").click()
    page.get_by_role("link", name="its runs").click()
    page.get_by_role("link", name="its sweep").click()
    expect(page.get_by_role("heading", name=shown.sweep.spec.id)).to_be_visible()


def test_trials_are_drawn_and_sorted(page: Page, shown: Shown) -> None:
    enter(page, shown, shown.place)
    found = shown.sweep.result.show()
    failed = [row["trial"] for row in found["table"] if row["status"] == "failed"]
    without = [row["trial"] for row in found["table"] if CLIP not in row["values"]]
    assert failed and without
    lines = page.locator('[data-what="parallel"] path.trial')
    expect(lines).to_have_count(TRIALS)
    assert all("NaN" not in (line.get_attribute("d") or "NaN") for line in lines.all())
    expect(page.locator('[data-what="parallel"] path.lost')).to_have_count(len(failed))
    clip = page.locator(f'[data-key="{CLIP}"] circle')
    has_clip = {row["trial"] for row in found["table"] if CLIP in row["values"]}
    expect(clip).to_have_count(len(has_clip - {*failed}))
    expect(page.get_by_role("region", name="What matters").locator("li").first).to_be_visible()

    assert numbers(page, 3) == sorted(numbers(page, 3), reverse=True)
    place = headings(page).index("learning_rate") + 1
    page.get_by_role("button", name="learning_rate").click()
    head = page.get_by_role("columnheader", name="learning_rate")
    expect(head).to_have_attribute("aria-sort", "descending")
    rates = numbers(page, place)
    assert len(rates) == TRIALS and rates == sorted(rates, reverse=True)
    page.get_by_role("button", name="learning_rate").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(rows(page).first).to_contain_text(f"{min(rates):.2e}".replace("e-0", "e-"))
    page.get_by_role("button", name="Return").click()
    page.get_by_role("button", name="Return").click()  # the worst first, and none last
    assert numbers(page, 3) == sorted(numbers(page, 3))
    expect(rows(page).last).to_contain_text("failed")


def headings(page: Page) -> list[str]:
    return page.get_by_role("region", name="Trials").locator("th").all_inner_texts()


def test_a_trial_that_is_looked_at_stands_out_everywhere(page: Page, shown: Shown) -> None:
    enter(page, shown, shown.place)
    best = shown.sweep.result.best.trial.number
    line = page.locator(f'[data-what="parallel"] path[data-trial="{best}"]')
    dot = page.locator(f'[data-key="{RATE}"] circle[data-trial="{best}"]')
    lit = re.compile(r"\blit\b")
    expect(line).not_to_have_class(lit)
    rows(page).first.hover()
    for each in (line, dot, rows(page).first):
        expect(each).to_have_class(lit)
    dot.hover()
    expect(line).to_have_class(lit)
    page.mouse.move(0, 0)
    expect(line).not_to_have_class(lit)

    chart = page.locator('[data-what="parallel"]')
    chart.focus()
    page.keyboard.press("ArrowDown")  # the best is first
    expect(line).to_have_class(lit)
    expect(page.locator(".told")).to_contain_text(f"Trial {best}: return")
    page.keyboard.press("ArrowDown")
    expect(line).not_to_have_class(lit)
    page.keyboard.press("Escape")
    expect(page.locator(".told")).to_have_text("")
    rows(page).first.get_by_role("link").first.focus()
    expect(line).to_have_class(lit)


def test_a_sweep_that_runs_is_read_again_by_itself(page: Page, home: Path) -> None:
    is_held, asked = True, list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    with contextlib.ExitStack() as stack:
        held = scripted_sweep(home, trials=1, ends=lambda state: "" if is_held else "finished")
        sweep = stack.enter_context(held)
        shown = stack.enter_context(showing(sweep))
        stack.enter_context(SweepFiles(sweep.home).carrying(sweep.spec.id))
        enter(page, shown, shown.place)
        expect(page.get_by_text("No trial has begun yet")).to_be_visible()
        for _ in range(3):
            sweep.step()
        page.clock.fast_forward(LOOK_MS)
        expect(rows(page)).to_contain_text("going")
        expect(page.locator('[data-what="parallel"] path.trial')).to_have_count(1)
        expect(page.get_by_text("No trial is done yet")).to_be_visible()
        is_held = False
        sweep.to_its_end()
        page.clock.fast_forward(LOOK_MS)
        expect(rows(page)).to_contain_text("done")
        expect(page.locator(f'[data-key="{RATE}"] circle')).to_have_count(1)
        expect(page.locator('[data-what="over"]')).to_have_text("1 of 1 trial over")
    looks = [url for url in asked if url.endswith(sweep.spec.id)]
    assert len(looks) < 8, "it is asked for every few seconds, and not more often"


def test_axe_finds_nothing_and_a_phone_is_wide_enough(browser: Browser, shown: Shown) -> None:
    with a_tab(browser, viewport=PHONE, has_touch=True, is_mobile=True) as phone:
        checker = Axe(phone)
        enter(phone, shown)
        expect(phone.get_by_role("link", name="1 sweep", exact=True)).to_be_visible()
        for place, seen in {
            "/sweeps": f'[data-sweep="{shown.sweep.spec.id}"]',
            shown.place: '[data-what="parallel"] path.trial',
            "/sweeps/sweep-nobody": "h1",
        }.items():
            phone.goto(f"{shown.url}/#{place}")
            expect(phone.locator(f"main {seen}").first).to_be_visible()
            assert fits(phone), place
            checker.look(place)
        expect(phone.get_by_role("heading", name="is not here")).to_be_visible()
    assert not checker.wrong, "\n".join(checker.wrong)
    assert checker.checked == 2 * 3
