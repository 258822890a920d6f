"""What a team with many runs does in a real browser: find, read, evaluate, replay, be let in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rookery.control.home import Home
from rookery.evaluation.kept_games import keep, taped
from rookery.evaluation.match import play_match
from tests.web.axe import Axe
from tests.web.browsing import SHORT, a_tab, enter, expect
from tests.web.test_watch import BOARD

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def test_a_team_finds_reads_evaluates_and_replays(
    page: Page, browser: Browser, served: Any
) -> None:
    board, other = (
        served.api("POST", "/runs", {"config": config, "start": False})["run"]
        for config in (BOARD, SHORT)
    )
    checker = Axe(page)
    the_list_is_kept_in_the_address(page, served, board, other)
    checker.look("the list")
    a_ctrl_click_opens_a_tab_that_is_signed_in(page, board)
    logs_are_searched(page, served, board)
    checker.look("files")
    an_evaluation_is_asked_for(page, served, board)
    checker.look("evaluate")
    a_game_is_replayed(page, served, board)
    checker.look("a replay")
    assert not checker.wrong, "\n".join(checker.wrong)
    with a_tab(browser) as reader:
        who_may_only_read_is_told_so(reader, served, board)


def the_list_is_kept_in_the_address(page: Page, served: Any, board: str, other: str) -> None:
    enter(page, served)
    page.get_by_label("Group").select_option("environment")
    expect(page.locator("tr.group")).to_have_count(2)
    page.get_by_label("Filter").fill("tic")
    expect(page.locator(f'[data-run="{other}"]')).to_have_count(0)
    expect(page.locator('[data-what="total"]')).to_have_text("1 of 2 runs")
    page.get_by_role("button", name="Steps", exact=True).click()
    page.reload()
    expect(page.get_by_label("Filter")).to_have_value("tic")
    expect(page.locator("tr.group")).to_have_count(1)
    expect(page.locator("th.c-env_steps")).to_have_attribute("aria-sort", "descending")
    page.get_by_label("Select all").check()
    expect(page.get_by_text("1 selected")).to_be_visible()


def a_ctrl_click_opens_a_tab_that_is_signed_in(page: Page, board: str) -> None:
    with page.context.expect_page() as opened:
        page.get_by_role("link", name=board).click(modifiers=["Control"])
    expect(opened.value.get_by_role("heading", name=board)).to_be_visible()
    opened.value.close()


def logs_are_searched(page: Page, served: Any, board: str) -> None:
    log = served.cli.home.run_dir(board) / "logs" / "actor-0.1.log"
    log.parent.mkdir(parents=True)
    with log.open("a") as file:
        file.write("<b>needle</b>\n" + "hay\n" * 3)
    page.goto(f"{served.url}/#/runs/{board}")
    expect(page.locator('[data-what="machine"]')).to_contain_text("CPU")
    page.get_by_role("link", name="Files and logs").click()
    page.get_by_label("Log", exact=True).select_option("actor-0.1.log")
    lines = page.get_by_role("region", name="Lines of")
    expect(lines).to_contain_text("hay")
    page.get_by_label("Search the log").fill("NEEDLE")
    expect(lines.locator("p")).to_have_text(["<b>needle</b>"])
    with log.open("a") as file:
        file.write("needle again\n")  # it is followed
    expect(lines).to_contain_text("needle again")
    expect(page.locator('[data-file="logs/actor-0.1.log"]')).to_be_visible()


def an_evaluation_is_asked_for(page: Page, served: Any, board: str) -> None:
    page.get_by_role("link", name="Evaluate").click()
    page.get_by_label("Episodes").fill("2")
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator("[data-evaluation]")).to_have_count(1)


def a_game_is_replayed(page: Page, served: Any, board: str) -> None:
    home: Home = served.cli.home
    players = ("script:random", "script:random")
    play_match(
        home,
        BOARD["environment"]["id"],
        *players,
        4,
        tape=lambda ways: keep(home.run_dir(board), taped("m", ways)),
    )
    game = served.api("GET", f"/runs/{board}/games")["matches"][0]["games"][0]["game"]
    page.goto(f"{served.url}/#/runs/{board}/watch?game={game}")
    step = page.locator('[data-what="step"]')
    expect(step).to_have_text(re.compile(r"^0 / [5-9]$"))
    empty = page.get_by_role("img", name="after 0 moves").get_attribute("src")
    page.get_by_role("button", name="Next move").click()
    expect(step).to_have_text(re.compile("^1 / "))
    assert page.get_by_role("img", name="after 1 moves").get_attribute("src") != empty
    page.get_by_role("button", name="Last").click()
    expect(page.get_by_text("The game is over")).to_be_visible()
    page.keyboard.press("Home")
    expect(step).to_have_text(re.compile("^0 / "))


def who_may_only_read_is_told_so(page: Page, served: Any, board: str) -> None:
    token = served.api("POST", "/tokens", {"scope": "read", "label": "reader"})["token"]
    page.goto(f"{served.url}/#token={token}")
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name=f"Delete {board}")).to_be_disabled()
    page.goto(f"{served.url}/#/runs/{board}")
    expect(page.get_by_role("button", name="Start")).to_be_disabled()
    expect(page.get_by_role("region", name="Controls")).to_contain_text("yours has read")
    expect(page.get_by_role("textbox", name="learning rate")).to_be_disabled()
    page.goto(f"{served.url}/#/runs/{board}/evaluate")
    expect(page.get_by_role("button", name="Evaluate")).to_be_disabled()
    expect(page.get_by_role("region", name="Evaluate", exact=True)).to_contain_text("yours has")
    page.goto(f"{served.url}/#/new")
    expect(page.get_by_role("button", name="Create run")).to_be_disabled()
