"""A game that is played live, watched in a real browser over a true server."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.conftest import wait_until
from tests.web.axe import Axe
from tests.web.browsing import enter, expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, WebSocketRoute

CART = {
    "environment": {"id": "CartPole-v1"},
    "stop": {"steps": 16_000},
    "checkpoint": {"interval_s": 0.05, "keep": 20},
}
BOARD = {
    "environment": {"id": "pgx:tic_tac_toe"},
    "actors": {"envs_per_actor": 16, "rollout_steps": 32},  # compiled for other tests too
    "stop": {"steps": 4_000},
    "league": {"snapshot_every_steps": 1_000},
}
TOO_MANY, GONE = 4429, 4000  # of a closed WebSocket


def trained(served: Any, config: dict[str, Any]) -> str:
    """A short run that is over."""
    run = str(served.api("POST", "/runs", {"config": config})["run"])
    wait_until(lambda: served.api("GET", f"/runs/{run}")["status"] == "finished", "a short run")
    return run


@pytest.fixture(scope="module")
def cart(served: Any) -> str:
    return trained(served, CART)


@pytest.fixture(scope="module")
def board(served: Any) -> str:
    return trained(served, BOARD)


def viewer(page: Page, state: str = "live") -> Locator:
    return page.locator(f'.viewer[data-state="{state}"]')


def what(page: Page, name: str) -> Locator:
    return page.locator(f'.viewer [data-what="{name}"]').first


def at_full_speed(page: Page) -> None:
    page.get_by_role("slider", name="Speed").press("End")
    expect(page.locator(".speed output")).to_have_text("60/s")
    page.locator("h1").click()  # keys belong to the page again


def seat(page: Page, name: str) -> Locator:
    return page.locator(f'[data-seat="{name}"]')


# --- one player ----------------------------------------------------------------------------------


def test_a_policy_is_watched_paused_and_stepped(page: Page, served: Any, cart: str) -> None:
    enter(page, served, f"/runs/{cart}/watch")
    expect(viewer(page)).to_be_visible()
    picture = page.get_by_role("img", name="CartPole-v1 as it stands")
    before = picture.get_attribute("src")
    assert before and before.startswith("data:image/png;base64,")
    expect(picture).not_to_have_attribute("src", before)

    at_full_speed(page)
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.keyboard.press("n")
    expect(what(page, "step")).to_have_text("0")
    it_thinks(page)
    for key, step in ((".", "1"), ("ArrowRight", "2"), (".", "3")):
        shown = what(page, "step").inner_text()
        page.keyboard.press(key)
        expect(what(page, "step")).not_to_have_text(shown)
        assert what(page, "step").inner_text() == step == what(page, "return").inner_text()

    page.keyboard.press("Space")
    expect(what(page, "step")).not_to_have_text("3")
    an_episode_ends(page)


def it_thinks(page: Page) -> None:
    """Of the two actions, with the more probable one chosen; and of what is to come."""
    options = page.get_by_role("list", name="Probabilities of the actions").get_by_role("listitem")
    expect(options).to_have_count(2)
    p = [float(option.get_attribute("data-p") or "nan") for option in options.all()]
    assert sum(p) == pytest.approx(1, abs=1e-3)
    likeliest = options.nth(p.index(max(p)))
    expect(likeliest).to_contain_text("chosen")
    expect(likeliest).to_contain_text(f"{100 * max(p):.1f} %")
    assert float(what(page, "value").inner_text()) > 0


def an_episode_ends(page: Page) -> None:
    ended = page.get_by_role("region", name="Last episodes").get_by_role("listitem")
    expect(ended.last).to_be_visible()
    number, returned = ended.first.inner_text().split()
    said = page.locator(".viewer > [role=status]")
    expect(said).to_have_text(re.compile(r"Episode \d+ over, return \d+"))
    assert int(number.removeprefix("#")) >= 1 and float(returned) >= 8  # it never falls before


def test_a_chosen_checkpoint_is_what_plays_also_after_a_reload(
    page: Page, served: Any, cart: str
) -> None:
    kept = served.api("GET", f"/runs/{cart}")["checkpoints"]
    first, newest = (f"main@{int(name.rpartition('-')[2])}" for name in (kept[0], kept[-1]))
    assert first != newest
    enter(page, served, f"/runs/{cart}/watch")
    expect(what(page, "weights")).to_have_text(newest)
    page.get_by_label("Weights", exact=True).select_option(kept[0])
    expect(what(page, "weights")).to_have_text(first)
    expect(page.locator(".seat h3")).to_have_text(first)
    assert f"weights={kept[0]}" in page.url

    page.reload()
    expect(what(page, "weights")).to_have_text(first)
    page.get_by_label("Weights", exact=True).select_option("newest")
    expect(what(page, "weights")).to_have_text(newest)


def test_what_cannot_be_shown_is_told_with_a_way_out(page: Page, served: Any, cart: str) -> None:
    enter(page, served, f"/runs/{cart}/watch?weights=nonsense")
    refused = page.get_by_role("alert")
    expect(refused).to_contain_text("This cannot be shown")
    expect(refused).to_contain_text("unknown checkpoint 'nonsense'")
    refused.get_by_role("button", name="Show the newest weights").click()
    expect(viewer(page)).to_be_visible()
    expect(page.get_by_role("img", name="CartPole-v1 as it stands")).to_be_visible()


def test_a_lost_connection_comes_back_and_asks_for_the_same(
    page: Page, served: Any, cart: str
) -> None:
    lines: list[WebSocketRoute] = []
    asked: list[dict[str, Any]] = []

    def connect(line: WebSocketRoute) -> None:
        lines.append(line)
        if len(lines) == 1:
            line.close(code=TOO_MANY, reason="4 people watch already")
            return
        server = line.connect_to_server()

        def pass_on(said: str | bytes) -> None:
            asked.append(json.loads(said))
            server.send(said)

        line.on_message(pass_on)

    page.clock.install()
    page.route_web_socket(re.compile("/api/v1/watch$"), connect)
    enter(page, served, f"/runs/{cart}/watch?sampled=true&seed=7")
    expect(page.get_by_role("heading", name="Too many watch at the moment")).to_be_visible()
    page.get_by_role("button", name="Try now").click()
    expect(viewer(page)).to_be_visible()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()

    lines[-1].close(code=GONE, reason="a test")
    expect(viewer(page)).to_have_count(0)
    expect(viewer(page)).to_be_visible()
    expect(what(page, "step")).to_have_text("0")  # it was paused, and stays so
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_enabled()
    assert len(lines) == 3
    watches = [said for said in asked if said["type"] == "watch"]
    assert watches[0] == watches[1]
    assert watches[0]["seed"] == 7 and watches[0]["sampled"] is True

    look_away(page, True)
    page.clock.fast_forward(61_000)
    expect(viewer(page, "asleep")).to_be_visible()
    wait_until(lambda: not viewers(served), "the end of the process that played")
    look_away(page, False)
    expect(viewer(page)).to_be_visible()
    assert len(lines) == 4


def look_away(page: Page, hidden: bool) -> None:
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: "
        "true }); document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def viewers(served: Any) -> list[Any]:
    return [process for process in served.cli.processes() if "viewer" in process.cmdline()]


# --- two players ---------------------------------------------------------------------------------


@pytest.mark.soak  # half a minute to compile the game
def test_a_match_is_watched_from_the_league(page: Page, served: Any, board: str) -> None:
    enter(page, served, f"/runs/{board}/league")
    snapshots = page.get_by_role("region", name="Snapshots")
    expect(snapshots.get_by_role("link", name="Watch main@0")).to_be_visible()
    axe = Axe(page)
    axe.look("a league")
    page.get_by_label("First player").fill(f"{board}@0")
    page.get_by_label("Second player").fill("script:first-legal")
    page.get_by_role("link", name="Watch this match").click()

    first, second = seat(page, "player_0"), seat(page, "player_1")
    expect(first.get_by_role("heading")).to_have_text(f"{board}@0")
    expect(second.get_by_role("heading")).to_have_text("script:first-legal")
    assert quote(f"{board}@0;script:first-legal", safe="") in page.url
    axe.look("a match")
    assert axe.checked == 4 and not axe.wrong, "\n".join(axe.wrong)
    at_full_speed(page)
    ended = page.get_by_role("region", name="Last episodes").get_by_role("listitem")
    expect(ended.first).to_have_text(re.compile(r"^#\d+ (1 / -1|0 / 0|-1 / 1)$"))

    page.get_by_role("button", name="Swap seats").click()
    expect(second.get_by_role("heading")).to_have_text(f"{board}@0")
    expect(first.get_by_role("heading")).to_have_text("script:first-legal")
    options = second.get_by_role("list", name="Probabilities of the actions")
    expect(options.get_by_role("listitem")).to_have_count(9)
    page.go_back()
    expect(page.get_by_label("First player")).to_have_value(f"{board}@0")
