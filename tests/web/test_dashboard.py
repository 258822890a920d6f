"""The page in a real browser, over a true server and true training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.web.browsing import (
    ENDLESS,
    HTML,
    SHORT,
    actors,
    enter,
    expect,
    picture,
    status,
    steps,
    until,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

# --- a run from the form to its end --------------------------------------------------------------


def test_a_run_is_created_watched_steered_and_stopped(page: Page, served: Any) -> None:
    enter(page, served, "/new")
    run = create_in_the_form(page)
    the_chart_moves(page)
    scale_with_the_slider(page, served)
    change_the_learning_rate(page)
    pause_resume_stop(page)
    the_log_shows_text_as_text(page)
    assert served.api("GET", f"/runs/{run}")["hyperparameters"]["algorithm.learning_rate"] == 1e-4


def create_in_the_form(page: Page) -> str:
    search = page.get_by_role("combobox", name="Environment")
    search.fill("cartp")
    expect(page.get_by_role("option").first).to_contain_text("CartPole-v1")
    search.press("ArrowDown")
    search.press("Enter")
    expect(search).to_have_value("CartPole-v1")
    page.get_by_label("Stop after steps").fill("100_000_000")
    page.get_by_label("Reason").fill(HTML)
    yaml = page.get_by_label("YAML", exact=True)
    expect(yaml).to_have_text(re.compile(r"id: CartPole-v1\s+stop:\s+steps: 100000000"))
    page.get_by_role("button", name="Create run").click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text(re.compile("cartpole-"))
    return heading.inner_text()


def the_chart_moves(page: Page) -> None:
    expect(status(page)).to_have_text("running")
    until(page, lambda: steps(page) > 0)
    before, trained = picture(page, "mean_return_100"), steps(page)
    until(page, lambda: steps(page) > trained)
    until(page, lambda: picture(page, "mean_return_100") != before)


def scale_with_the_slider(page: Page, served: Any) -> None:
    expect(actors(page)).to_have_count(1)
    page.get_by_role("slider", name="Actors").press("ArrowRight")
    expect(page.locator("#actors-effect")).to_contain_text("actors 1 -> 2: 1 process starts")
    page.locator("#actors-effect").get_by_role("button", name="Apply").click()
    expect(actors(page)).to_have_count(2)
    pids = {int(pid) for pid in actors(page).locator('[data-what="process"]').all_inner_texts()}
    assert pids <= {process.pid for process in served.cli.processes()}
    expect(actors(page).first.locator('[data-what="cpu"]')).to_have_text(re.compile(r"\d %"))
    expect(actors(page).first.locator('[data-what="memory"]')).to_have_text(re.compile(r"\d MB"))
    table = page.get_by_role("region", name="All workers")
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")  # all of it is seen


def change_the_learning_rate(page: Page) -> None:
    form = page.get_by_role("form", name="Hyperparameters")
    form.get_by_label("learning rate").fill("7")
    expect(form).to_contain_text("less than or equal to 1")
    expect(form.get_by_role("button", name="Apply")).to_be_disabled()
    form.get_by_label("learning rate").fill("1e-4")
    expect(form.get_by_role("status")).to_contain_text("-> 0.0001 from the next update on")
    form.get_by_label("Reason").fill("it diverges")
    form.get_by_role("button", name="Apply").click()
    marks = page.locator('[data-metric="mean_return_100"]').get_by_role("list", name="Marks")
    expect(marks).to_contain_text("learning rate 1e-4")
    expect(page.locator('[data-metric="learning_rate"] .reads')).to_contain_text("1e-4")


def pause_resume_stop(page: Page) -> None:
    page.get_by_role("button", name="Pause").click()
    expect(status(page)).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(status(page)).to_have_text("running")
    trained = steps(page)
    until(page, lambda: steps(page) > trained)
    page.get_by_role("button", name="Stop").click()
    expect(status(page)).to_have_text("stopped")
    expect(actors(page)).to_have_count(0)
    expect(page.get_by_role("button", name="Go on")).to_be_visible()


def the_log_shows_text_as_text(page: Page) -> None:
    page.get_by_role("link", name="Log", exact=True).click()
    audit = page.get_by_role("region", name="Audit")
    expect(audit).to_contain_text(HTML)
    expect(audit).to_contain_text("it diverges")
    expect(page.locator("main img, main b:has-text('bold')")).to_have_count(0)


def test_a_run_that_ended_goes_on_up_to_steps_minutes_or_a_return(
    page: Page, served: Any, eventually: Any
) -> None:
    def ended(is_so: str) -> None:
        eventually(lambda: served.api("GET", f"/runs/{run}")["status"] == is_so, is_so)

    run = served.api("POST", "/runs", {"config": SHORT})["run"]
    ended("finished")
    enter(page, served, f"/runs/{run}")
    go_on, how_far = (
        page.get_by_role("button", name="Go on"),
        page.get_by_label("How far", exact=True),
    )
    by = page.get_by_label("Go on up to")
    expect(by.locator("option")).to_have_text(["steps in all", "minutes in all", "return"])
    expect(how_far).to_have_value(re.compile(r"^[23]\d{4}$"))  # twice as far
    how_far.fill("12")
    expect(go_on).to_be_disabled()
    by.select_option("minutes in all")
    expect(how_far).to_have_value("")
    expect(go_on).to_be_disabled()
    how_far.fill("500")
    go_on.click()
    expect(status(page)).to_have_text("running")
    page.get_by_role("button", name="Stop").click()
    expect(status(page)).to_have_text("stopped")
    expect(by).to_have_value("")
    expect(by.locator("option").first).to_have_text("its bounds")
    by.select_option("return")
    how_far.fill("-3.5")
    with page.expect_response(re.compile("/resume")) as answer:
        go_on.click()
    assert answer.value.request.post_data_json == {"until_return": -3.5, "reason": ""}
    assert "has a mean return of" in answer.value.json()["detail"]
    how_far.fill("400.5")
    go_on.click()
    expect(status(page)).to_have_text("running")
    stop = served.api("GET", f"/runs/{run}/config")["stop"]
    assert (stop["minutes"], stop["until_return"]) == (500, 400.5)
    page.get_by_role("button", name="Stop").click()
    expect(status(page)).to_have_text("stopped")


def test_a_run_is_named_tagged_and_described_on_its_page(page: Page, served: Any) -> None:
    body = {"config": SHORT, "start": False, "name": "first", "notes": "one\ntwo"}
    run = served.api("POST", "/runs", body)["run"]
    enter(page, served, f"/runs/{run}")
    shown = page.locator('[data-what="labels"]')
    expect(shown).to_contain_text("first")
    expect(shown).to_contain_text("two")
    shown.get_by_role("button", name="Edit labels").click()
    form = page.get_by_role("form", name="Labels")
    expect(form.get_by_label("Notes")).to_have_value("one\ntwo")
    form.get_by_label("Tags").fill("x" * 300)
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("tags")
    form.get_by_label("Tags").fill("nightly,  ablation")
    form.get_by_label("Name").fill(HTML)
    form.get_by_role("button", name="Save").click()
    expect(shown).to_contain_text(HTML)
    expect(shown.locator(".tag")).to_have_text(["nightly", "ablation"])
    found = served.api("GET", f"/runs/{run}")
    assert (found["name"], found["tags"]) == (HTML, ["nightly", "ablation"])
    assert found["notes"] == "one\ntwo"


# --- several runs --------------------------------------------------------------------------------


def test_two_runs_are_compared_and_one_is_deleted(page: Page, served: Any, eventually: Any) -> None:
    first, second = (served.api("POST", "/runs", {"config": SHORT})["run"] for _ in range(2))
    for run in (first, second):
        eventually(lambda run=run: served.api("GET", f"/runs/{run}")["status"] == "finished", "it")
    enter(page, served)
    for run in (first, second):
        row = page.locator(f'[data-run="{run}"]')
        expect(row).to_contain_text("finished")
        # a line without height, of a run whose return stayed the same, counts as hidden
        expect(row.locator("svg path")).to_have_attribute("d", re.compile("^M.+L"))
        row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare").click()
    read = page.locator('[data-metric="mean_return_100"] .read')
    expect(read).to_have_count(2)
    expect(read.last).to_have_text(re.compile(r"\d"))
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    rows = download.value.path().read_text().splitlines()
    assert rows[0] == "run,metric,env_steps,time_s,value,low,high"
    assert {row.split(",")[0] for row in rows[1:]} == {f'"{first}"', f'"{second}"'}

    page.get_by_role("link", name="all runs", exact=True).click()
    page.get_by_role("button", name=f"Delete {first}").click()
    asked = page.get_by_role("dialog")
    expect(asked).to_contain_text("removed for good")
    asked.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name=f"Delete {first}").click()
    asked.get_by_role("button", name="Delete for good").click()
    expect(page.locator(f'[data-run="{first}"]')).to_have_count(0)
    expect(page.locator(f'[data-run="{second}"]')).to_be_visible()
    page.get_by_label("Filter").fill("no such run")
    expect(page.get_by_text("No run fits the filter")).to_be_visible()


def test_a_server_that_dies_and_comes_back_is_gone_on_with(page: Page, cli: Any) -> None:
    served = cli.serve()
    config = {**ENDLESS, "checkpoint": {"interval_s": 1}}
    run = served.api("POST", "/runs", {"config": config})["run"]
    enter(page, served, f"/runs/{run}")
    until(page, lambda: steps(page) > 0)
    page.evaluate("window.sameTab = true")
    connection = page.locator(".connection")
    expect(connection).to_have_attribute("data-state", "live")

    served.process.kill()
    served.process.wait(30)
    expect(connection).to_have_attribute("data-state", "lost")
    trained = steps(page)
    again = cli.serve("--port", served.url.rpartition(":")[2])

    expect(connection).to_have_attribute("data-state", "live")
    until(page, lambda: steps(page) > trained)
    expect(status(page)).to_have_text("running")
    assert again.url == served.url and page.evaluate("window.sameTab")
    points = page.locator(".charts").get_attribute("data-version")
    expect(page.locator(".charts")).not_to_have_attribute("data-version", points)


# --- what is refused -----------------------------------------------------------------------------


def test_a_refused_token_is_asked_for_again(page: Page, served: Any) -> None:
    bad = "rk_00000000_" + "x" * 43
    page.goto(f"{served.url}/#token={bad}")
    expect(page.get_by_role("heading", name="This token was refused")).to_be_visible()
    assert bad not in page.url
    assert page.evaluate("Object.values(sessionStorage).length") == 0
    page.get_by_label("Token").fill(f"{served.url}/#token={served.token}")  # the link is as good
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()


def test_what_the_server_refuses_stands_beside_its_field(page: Page, served: Any) -> None:
    enter(page, served, "/new")
    search = page.get_by_role("combobox", name="Environment")
    search.fill("CartPole-v9")
    search.press("Escape")
    page.get_by_role("button", name="Create run").click()
    beside = page.locator('[data-field="environment.id"] [role=alert]')
    expect(beside).to_contain_text("did you mean CartPole-v1?")
    expect(search).to_have_attribute("aria-invalid", "true")

    search.fill("CartPole-v1")
    search.press("Escape")
    expect(beside).to_have_count(0)
    page.get_by_label("Learning rate").fill("7")
    page.get_by_text("How experience becomes batches").click()
    page.get_by_label("Threads").fill("many")
    page.get_by_role("button", name="Check").click()
    expect(page.locator('[data-field="algorithm.learning_rate"] [role=alert]')).to_contain_text("7")
    expect(page.locator('[data-field="learner.threads"] [role=alert]')).to_be_visible()


def test_a_clone_is_the_same_run_to_the_last_null(page: Page, served: Any) -> None:
    odd = {"network": {"hidden": []}, "algorithm": {"value_clip": None, "gamma": 0.5}}
    body = {"config": {**SHORT, **odd}, "start": False}
    run = served.api("POST", "/runs", body)["run"]
    enter(page, served, f"/new?from={run}")
    expect(page.get_by_label("Gamma")).to_have_value("0.5")
    with page.expect_request(lambda request: "dry_run=true" in request.url) as sent:
        page.get_by_role("button", name="Check").click()
    assert sent.value.post_data_json["config"] == served.api("GET", f"/runs/{run}/config")
    expect(page.get_by_role("status").filter(has_text="creates a run")).to_be_visible()
