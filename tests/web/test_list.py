"""The list of a team's runs: the server finds, sorts, groups and counts, the address keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rookery.config.reading import build
from rookery.control.check import check_config
from rookery.control.home import content
from rookery.messages import Command, CommandAccepted, CreateRun, RunEnded, StartRun
from tests.web.browsing import enter, expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

COUNT = 120  # more than a page has rows


@pytest.fixture
def served(cli: Any) -> Any:
    """A server whose home has runs of a dozen seeds, a third of them nightly ones."""
    home, config = cli.home, build({"environment": {"id": "CartPole-v1"}})
    looked = content(config, check_config(home, config))
    commands: list[Command] = []
    for number in range(COUNT):
        seeded = {**looked, "config": {**looked["config"], "seed": number % 12}}
        tags = ["nightly"] if number % 3 == 0 else []
        labels = {"name": f"try {number}", "tags": tags, "notes": f"note-{number}"}
        commands.append(CreateRun(run=f"cart-{number:03}", config=seeded, **labels))
        if number % 10 == 0:
            commands.append(StartRun(run=f"cart-{number:03}"))
    home.send(*commands)
    home.record(*(CommandAccepted(run=made.run, command=made.id) for made in commands))
    ended = {"status": "finished", "reason": "done", "env_steps": 1000, "updates": 1}
    for number in range(0, COUNT, 10):
        home.record(RunEnded(run=f"cart-{number:03}", mean_return_100=float(number), **ended))
    home.close()
    return cli.serve("--cpus", 4)


def total(page: Page) -> Locator:
    return page.locator('[data-what="total"]')


def rows(page: Page) -> Locator:
    return page.locator("tr[data-run]")


def order(page: Page) -> Any:
    return rows(page).evaluate_all("rows => rows.map((row) => row.dataset.run)")


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).fragment.partition("?")[2])


def test_many_runs_are_found_sorted_grouped_and_sent_as_a_link(page: Page, served: Any) -> None:
    enter(page, served)
    expect(total(page)).to_have_text("120 runs")
    expect(rows(page)).to_have_count(50)
    page.get_by_role("button", name="Next").click()
    expect(rows(page).first).to_contain_text("try 69")
    page.get_by_role("button", name="Next").click()
    expect(rows(page)).to_have_count(20)
    expect(rows(page).last).to_contain_text("try 0")
    assert asked(page) == {"offset": ["100"]}

    page.get_by_label("Filter").fill("seed=3")  # of runs that no page showed
    expect(total(page)).to_have_text("10 of 120 runs")
    page.get_by_label("Filter").fill("")
    page.get_by_role("combobox", name="State").select_option("finished")
    expect(total(page)).to_have_text("12 of 120 runs")
    page.get_by_role("button", name="Return").click()
    expect(rows(page).first).to_contain_text("try 110")
    page.get_by_role("button", name="Return").click()
    expect(rows(page).first).to_contain_text("try 0")

    page.get_by_text("Columns").click()
    page.get_by_label("Config key").fill("seed")
    page.get_by_role("button", name="Add").click()
    expect(rows(page).first.locator('[data-label="seed"]')).to_have_text("0")
    page.get_by_label("Policy lag").uncheck()
    expect(page.locator("th.c-lag_mean")).to_have_count(0)
    page.get_by_text("Columns").click()
    page.get_by_label("Group").select_option("seed")
    expect(page.locator("tr.group")).to_have_text(["0 2", "2 2", "4 2", "6 2", "8 2", "10 2"])

    other = page.context.new_page()  # with nothing but the link, and signed in by the first tab
    other.goto(page.url)
    expect(other.locator("tr.group")).to_have_count(6)
    expect(other.locator("th.c-seed")).to_be_visible()
    expect(other.locator("th.c-lag_mean")).to_have_count(0)
    expect(other.locator("th.c-mean_return_100")).to_have_attribute("aria-sort", "ascending")
    assert order(other) == order(page)
    with page.context.expect_page() as opened:
        rows(other).first.get_by_role("link").click(button="middle")
    expect(opened.value.get_by_role("heading", name="cart-000")).to_be_visible()


def test_all_that_fit_are_selected_and_deleted_and_a_tag_filters(page: Page, served: Any) -> None:
    enter(page, served)
    page.get_by_label("Select all 120 that fit").check()
    expect(page.get_by_text("120 selected")).to_be_visible()
    page.get_by_label("Select all").uncheck()
    rows(page).get_by_role("button", name="nightly").first.click()
    expect(total(page)).to_have_text("40 of 120 runs")
    page.get_by_label("Filter").fill("seed=9")
    expect(total(page)).to_have_text("10 of 120 runs")
    page.get_by_label("Select all 10 that fit").check()
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Delete 10 runs?")
    page.get_by_role("button", name="Delete for good").click()
    expect(total(page)).to_have_text("0 of 110 runs")
    page.get_by_role("button", name="Show all").click()
    expect(total(page)).to_have_text("110 runs")
    page.goto(f"{served.url}/#/runs?sort=sed")
    expect(page.get_by_role("alert")).to_contain_text("did you mean seed")


def test_a_run_is_named_in_the_form(page: Page, cli: Any) -> None:
    served = cli.serve()
    enter(page, served, "/new")
    page.get_by_role("combobox", name="Environment").fill("CartPole-v1")
    page.get_by_label("Name").fill("baseline")
    page.get_by_label("Tags").fill("nightly, good")
    page.get_by_label("Notes").fill("why")
    page.get_by_label("Start at once").uncheck()
    page.get_by_role("button", name="Create run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("cartpole-")
    found = served.api("GET", "/runs?search=why")["runs"][0]
    assert (found["name"], found["tags"]) == ("baseline", ["nightly", "good"])
