"""Everybody can use the page: axe finds nothing, a keyboard is enough, and so is a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.axe import Axe
from tests.web.browsing import ENDLESS, SHORT, a_tab, actors, enter, expect, status, steps, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

PHONE = {"width": 390, "height": 844}
MOST_TABS = 150


# --- axe -----------------------------------------------------------------------------------------


def test_axe_finds_nothing_on_any_page(page: Page, cli: Any, eventually: Any) -> None:
    served, checker = cli.serve("--cpus", 16), Axe(page)

    def go(place: str, *shown: Locator) -> None:
        page.goto(f"{served.url}/#{place}")
        for locator in shown:
            expect(locator.first).to_be_visible()
        checker.look(place or "no token")

    page.goto(served.url)
    expect(page.get_by_role("heading", name="A token is needed")).to_be_visible()
    checker.look("no token")
    page.goto(f"{served.url}/#token=rk_00000000_{'x' * 43}")
    expect(page.get_by_role("heading", name="refused")).to_be_visible()
    checker.look("a refused token")
    enter(page, served)
    expect(page.get_by_text("No runs yet")).to_be_visible()
    checker.look("no runs")
    labels = {"name": "baseline", "tags": ["nightly"]}
    ended = served.api("POST", "/runs", {"config": SHORT, **labels})["run"]
    eventually(lambda: served.api("GET", f"/runs/{ended}")["status"] == "finished", "its end")
    run = served.api("POST", "/runs", {"config": ENDLESS, "start": False})["run"]

    row = page.locator(f'[data-run="{ended}"]')
    go("/runs", row.locator("svg path"))
    row.get_by_role("checkbox").check()
    row.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("for good")
    checker.look("a question")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_label("Group").select_option("tag")
    row.get_by_role("button", name="nightly").click()
    page.get_by_text("Columns").click()
    page.get_by_label("Config key").fill("seed")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("th.c-seed")).to_be_visible()
    checker.look("groups, a tag and other columns")
    page.get_by_text("Columns").click()
    held: list[Route] = []
    page.route("**/api/v1/runs?*", lambda route: held.append(route))  # noqa: PLW0108 no builtin
    page.get_by_label("Filter").fill("nothing")
    expect(page.locator("[aria-busy=true]")).to_be_visible()
    checker.look("an answer that is waited for")
    for asked in held:
        asked.continue_()
    page.unroute("**/api/v1/runs?*")
    expect(page.get_by_text("No run fits")).to_be_visible()
    checker.look("no run fits")

    go("/new", page.get_by_role("button", name="Create run"))
    page.get_by_role("combobox", name="Environment").fill("cart")
    expect(page.get_by_role("option").first).to_be_visible()
    checker.look("a list of environments")
    page.get_by_role("combobox", name="Environment").press("Escape")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("[data-field] [role=alert]").first).to_be_visible()
    for summary in page.locator("summary").all():
        summary.click()
    checker.look("the whole form, with a complaint")

    chart = page.locator('[data-metric="mean_return_100"] canvas')
    go(f"/runs/{ended}", chart)
    go(f"/runs/{run}", page.get_by_role("button", name="Start"))
    page.get_by_role("slider", name="Actors").press("ArrowRight")
    page.get_by_role("form", name="Hyperparameters").get_by_label("learning rate").fill("7")
    expect(page.get_by_role("form", name="Hyperparameters")).to_contain_text("less than or")
    checker.look("changes that are not made yet")
    go(f"/runs/{ended}/log", page.get_by_role("region", name="Events").locator("time"))
    go(f"/runs/{ended}/config", page.locator("pre").filter(has_text="environment"))
    go(f"/runs/{ended}/league", page.locator(".tabs"))
    go(f"/runs/{run}/watch", page.locator(".tabs"))
    go(f"/compare?runs={ended},{run}", chart, page.get_by_text("do not share"))
    go("/compare", page.get_by_text("Select two or more"))
    go("/sweeps", page.get_by_role("heading", name="No sweeps yet"))
    go("/runs/nobody", page.get_by_role("heading", name="is not here"))
    go("/nowhere", page.get_by_role("heading", name="There is nothing here"))
    go(f"/runs/{ended}", chart)
    served.process.kill()
    expect(page.locator(".connection")).to_have_attribute("data-state", "lost")
    checker.look("a lost connection")

    assert not checker.wrong, "\n".join(checker.wrong)
    assert checker.checked == 2 * 25


# --- a keyboard ----------------------------------------------------------------------------------


def tab_to(page: Page, wanted: Locator, key: str = "Tab") -> None:
    """Go there as a keyboard does; at each stop one sees where one is."""
    expect(wanted).to_be_attached()
    for _ in range(MOST_TABS):
        page.keyboard.press(key)
        where = page.evaluate(FOCUSED)
        assert where["isSeen"], f"nobody sees that {where['what']} has the focus"
        if wanted.evaluate("element => element === document.activeElement"):
            return
    pytest.fail(f"{MOST_TABS} times {key} did not lead to {wanted}")


FOCUSED = """
() => {
  const element = document.activeElement;
  if (element === document.body) return { what: 'the page', isSeen: true };
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  const isMarked = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
  const isAbove = box.bottom <= 0 || box.right <= 0;
  const isBelow = box.top >= innerHeight || box.left >= innerWidth;
  const isSeen = isMarked && !isAbove && !isBelow && box.width > 0;
  return { what: element.outerHTML.slice(0, 120), isSeen };
}
"""


@pytest.mark.soak
def test_a_run_is_made_steered_and_compared_by_keyboard_alone(page: Page, served: Any) -> None:
    other = served.api("POST", "/runs", {"config": SHORT, "start": False})["run"]
    page.goto(f"{served.url}/#token={served.token}")
    tab_to(page, page.get_by_role("navigation").get_by_role("link", name="New run"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("combobox", name="Environment"))
    page.keyboard.type("CartPole-v1")
    expect(page.get_by_role("option").first).to_contain_text("CartPole-v1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_label("Stop after steps"))
    page.keyboard.type("100_000_000")
    page.keyboard.press("Enter")  # as in every form

    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text(re.compile("cartpole-"))
    run = heading.inner_text()
    expect(status(page)).to_have_text("running")
    until(page, lambda: steps(page) > 0)
    tab_to(page, page.get_by_role("slider", name="Actors"))
    page.keyboard.press("ArrowRight")
    effect = page.locator("#actors-effect")
    expect(effect).to_contain_text("actors 1 -> 2")
    tab_to(page, effect.get_by_role("button", name="Apply"))
    page.keyboard.press("Enter")
    expect(actors(page)).to_have_count(2)
    tab_to(page, page.get_by_role("button", name="Pause"), "Shift+Tab")
    page.keyboard.press("Space")
    expect(status(page)).to_have_text("paused")
    tab_to(page, page.get_by_role("button", name="Stop"))
    page.keyboard.press("Enter")
    expect(status(page)).to_have_text("stopped")

    tab_to(page, page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs"))
    page.keyboard.press("Enter")
    for name in (run, other):
        tab_to(page, page.get_by_label(f"Select {name}"))
        page.keyboard.press("Space")
    tab_to(page, page.get_by_role("button", name="Compare"), "Shift+Tab")
    page.keyboard.press("Enter")
    plot = page.locator('[data-metric="mean_return_100"] .plot')
    tab_to(page, plot)
    page.keyboard.press("ArrowLeft")  # reads the values there
    expect(page.locator('[data-metric="mean_return_100"] .at')).to_contain_text("steps")


# --- a phone -------------------------------------------------------------------------------------


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    with a_tab(browser, viewport=PHONE, has_touch=True, is_mobile=True) as tab:
        yield tab


def fits(page: Page) -> bool:
    """Nothing has to be scrolled sideways but what scrolls by itself."""
    found = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    return bool(found[0] <= found[1] == PHONE["width"])


def test_runs_are_seen_and_steered_on_a_phone(phone: Page, served: Any) -> None:
    run = served.api("POST", "/runs", {"config": ENDLESS})["run"]
    enter(phone, served)
    row = phone.locator(f'[data-run="{run}"]')
    expect(row).to_contain_text(re.compile("running|starting"))
    assert fits(phone)
    row.get_by_role("link", name=run).tap()
    expect(status(phone)).to_have_text("running")
    until(phone, lambda: steps(phone) > 0)
    assert fits(phone)
    for name in ("Charts", "Watch", "Evaluate", "Files and logs", "Log", "Config"):
        phone.get_by_role("link", name=name, exact=True).tap(trial=True)
    phone.get_by_role("button", name="Pause").tap()
    expect(status(phone)).to_have_text("paused")
    phone.get_by_role("button", name="Stop").tap()
    expect(status(phone)).to_have_text("stopped")
    for place, shown in {
        f"/runs/{run}/watch": ".tabs",
        f"/runs/{run}/league": ".card h2",
        f"/runs/{run}/files": ".card h2",
        f"/runs/{run}/evaluate": ".card h2",
        f"/runs/{run}/log": "time",
        f"/runs/{run}/config": "pre",
        f"/compare?runs={run},{run}0": ".charts",
        "/new": "form",
        "/nowhere": "h1",
    }.items():
        phone.goto(f"{served.url}/#{place}")
        expect(phone.locator(f"main {shown}").first).to_be_visible()
        assert fits(phone), place
