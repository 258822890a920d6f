"""The return chart: its mean as a line, and a band from the least to the greatest return."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.browsing import ENDLESS, SHORT, enter, expect, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

RETURNS = ("mean_return_100", "min_return_100", "max_return_100")
SPREAD = re.compile(r"^([\d.]+) \(([\d.]+) to ([\d.]+)\)$")


def read_out(page: Page) -> list[tuple[float, ...]]:
    """Mean, least and greatest return of each run, where the chart's middle is pointed at."""
    chart = page.locator('[data-metric="mean_return_100"]')
    chart.locator(".u-over").hover()
    expect(chart.locator(".at")).to_contain_text("mean (min to max)")
    reads = chart.locator(".read > span:last-child")  # after whose it is, where there are several
    expect(reads.last).to_have_text(SPREAD)
    found = [SPREAD.match(text) for text in reads.all_inner_texts()]
    return [tuple(map(float, match.groups())) for match in found if match]


@pytest.mark.soak
def test_a_finished_run_tells_mean_least_and_greatest_return(
    page: Page, served: Any, eventually: Any
) -> None:
    runs = [served.api("POST", "/runs", {"config": SHORT})["run"] for _ in range(2)]
    for run in runs:
        eventually(lambda run=run: served.api("GET", f"/runs/{run}")["status"] == "finished", "it")
    enter(page, served, f"/compare?runs={','.join(runs)}")
    expect(page.locator('[data-metric="mean_return_100"] .read')).to_have_count(2)

    reads = read_out(page)

    assert len(reads) == 2
    for mean, least, greatest in reads:
        assert 1 <= least < mean < greatest <= 500
    the_download_holds_them(page, served, runs)


def the_download_holds_them(page: Page, served: Any, runs: list[str]) -> None:
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    with download.value.path().open() as file:
        rows = list(csv.DictReader(file))
    for run in runs:
        query = f"/runs/{run}/metrics?names={','.join(RETURNS)}&points=10000"
        for series in served.api("GET", query)["series"]:
            own = [r["value"] for r in rows if (r["run"], r["metric"]) == (run, series["name"])]
            told = [float(value) if value else None for value in own]
            assert told == series["value"] and any(told)


@pytest.mark.soak
def test_the_band_of_a_run_that_trains_comes_by_the_stream(page: Page, served: Any) -> None:
    run = served.api("POST", "/runs", {"config": ENDLESS, "start": False})["run"]
    enter(page, served, f"/runs/{run}")
    read = page.locator('[data-metric="mean_return_100"] .read')
    expect(read).not_to_have_text(re.compile(r"\d"))  # its history has no point
    served.api("POST", f"/runs/{run}/start", {})
    until(page, lambda: re.search(r"\d", read.inner_text()))

    ((mean, least, greatest),) = read_out(page)

    assert 1 <= least <= mean <= greatest <= 500
    served.api("POST", f"/runs/{run}/stop", {})
