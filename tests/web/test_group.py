"""A group of runs in a real browser: one figure, one curve with a band, a fork of one of them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.axe import Axe
from tests.web.browsing import enter, expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.conftest import Cli

STEPS = 2_000


@pytest.fixture(scope="module")
def seeds(shared_cli: Cli) -> dict[str, Any]:
    small = ("--envs-per-actor", 8, "--set", "actors.rollout_steps=16", "--launcher", "inline")
    asked = ("train", "CartPole-v1", *small, "--steps", STEPS, "--seeds", 2, "--json")
    found: dict[str, Any] = shared_cli(*asked).json
    return found


def test_a_group_is_one_curve_with_a_band(page: Page, seeds: dict[str, Any], served: Any) -> None:
    enter(page, served)
    group, (figures,) = seeds["group"], seeds["aggregates"]
    page.get_by_role("link", name=group).first.click()
    expect(page.get_by_role("heading", name=group)).to_be_visible()
    part = page.get_by_label(f"CartPole-v1 of {group}")
    expect(part.get_by_role("link", name=figures["best"])).to_be_visible()
    curve = part.get_by_role("img")
    assert "of 2 runs of CartPole-v1" in (curve.get_attribute("aria-label") or "")
    band = curve.locator("path.band").get_attribute("d") or ""
    assert band.startswith("M") and band.endswith("Z") and "NaN" not in band
    marks = [float(mark) for mark in curve.locator(".grid + text").all_text_contents()]
    steps = {f"{after - before:.3g}" for before, after in pairwise(marks)}
    assert len(steps) == 1 and len(marks) >= 2, marks
    assert steps.pop().strip("0.") in ("1", "2", "5"), marks
    expect(page.locator("tbody tr")).to_have_count(2)
    axe = Axe(page)
    axe.look("a group")
    assert axe.checked == 2 and axe.wrong == []


def test_a_run_is_forked_by_the_form(page: Page, seeds: dict[str, Any], served: Any) -> None:
    parent = seeds["runs"][0]
    enter(page, served, f"/runs/{parent['run']}")
    page.get_by_role("link", name="Fork").click()
    expect(page.get_by_text("begins where")).to_be_visible()
    page.get_by_label("Stop after steps").fill(str(2 * STEPS))
    page.get_by_label("Group", exact=True).fill("forks")
    page.get_by_role("button", name="Create").click()
    name = f"{parent['run']}@{parent['updates']}"
    expect(page.get_by_role("link", name=f"from {name}")).to_be_visible()
    expect(page.get_by_role("link", name="group forks")).to_be_visible()
