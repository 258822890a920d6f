"""Whatever people, environments and players write is shown as text, on every page."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from rookery.bus import Outgoing
from rookery.config.reading import build
from rookery.control.check import check_config
from rookery.messages import (
    METRICS_TRAINING,
    LedgerSummary,
    PolicyMetrics,
    RunEnded,
    TrainingMetrics,
    WorkerFailed,
    encode_json,
)
from tests.web.browsing import HTML, SHORT, enter, expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAME = "<img src=x onerror=document.title=1>"  # no run's that the server would make
RUN = "hostile"


@pytest.fixture
def hostile(shared_cli: Any, served: Any) -> str:
    """A run whose author, errors, policies, seats and metrics are HTML, beside one whose name is:
    only who writes into the log can make such a one."""
    home = shared_cli.home
    config = build(SHORT)
    for name in (RUN, NAME):
        home.create(config, check_config(home, config), author=HTML, run=name)
    with contextlib.closing(home.open_run_bus(RUN, config)) as bus:
        bus.publish([Outgoing(METRICS_TRAINING, encode_json(said(i))) for i in range(1, 30)])
    home.record(
        WorkerFailed(run=RUN, kind="actor", index=0, incarnation=1, error=HTML, detail=HTML),
        RunEnded(run=RUN, status="failed", reason=HTML),
    )
    return RUN


def said(i: int) -> TrainingMetrics:
    numbers = {HTML: float(i), f"{HTML}.loss": float(i), "policy_loss": 1.0 / i}
    policy = PolicyMetrics(values=numbers, mean_return_100=1.0, trained=i, episodes=i)
    return TrainingMetrics(
        run=RUN,
        policy=HTML,
        generation=1,
        updates=i,
        env_steps=100 * i,
        train_s=float(i),
        steps_per_s=1.0,
        recent_steps_per_s=1.0,
        episodes=i,
        mean_return_100=float(i),
        mean_length_100=1.0,
        lag_mean=0.0,
        lag_max=0,
        ledger=LedgerSummary(trained=i, dropped={HTML: 1}, pending=0, position=(0,), seen={}),
        values=numbers,
        policies={HTML: policy, "main": policy},
        seats={HTML: 1.0},
    )


def is_text(page: Page, *shown: str) -> None:
    """It is there to be read, and is nothing else."""
    main = page.locator("main")
    for text in shown:
        expect(main.get_by_text(text).first).to_be_attached()
    expect(page.locator("img[src=x]")).to_have_count(0)
    expect(page.locator("b:has-text('bold')")).to_have_count(0)
    expect(page).to_have_title(re.compile("Rookery$"))


def test_html_in_names_and_errors_is_text_on_every_page(
    page: Page, served: Any, hostile: str
) -> None:
    enter(page, served, "/runs")
    is_text(page, NAME, RUN)
    page.get_by_role("button", name=f"Delete {NAME}").click()
    expect(page.get_by_role("dialog")).to_contain_text(NAME)
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("link", name=RUN).click()
    expect(page.locator(".charts [data-metric]").nth(3)).to_be_visible()
    is_text(page, HTML)
    page.get_by_role("toolbar").get_by_role("combobox").select_option(HTML)
    is_text(page, HTML)
    for tab, shown in (("log", HTML), ("league", RUN), ("config", "CartPole-v1"), ("watch", RUN)):
        page.goto(f"{served.url}/#/runs/{hostile}/{tab}")
        is_text(page, shown)
    name = quote(NAME)
    page.goto(f"{served.url}/#/compare?runs={RUN},{name}")
    is_text(page, NAME, RUN)
    page.goto(f"{served.url}/#/runs/{name}")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{NAME} is not here")
    is_text(page, NAME)


def test_html_in_the_form_is_text(page: Page, served: Any) -> None:
    enter(page, served, "/new")
    search = page.get_by_role("combobox", name="Environment")
    search.fill(HTML)
    search.press("Escape")
    page.get_by_role("button", name="Check").click()
    expect(page.locator('[data-field="environment.id"] [role=alert]')).to_contain_text("<img")
    is_text(page, HTML)
