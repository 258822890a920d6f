"""The form says of the chosen environment what its seats see and play."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.web.browsing import enter, expect

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_the_form_shows_what_the_chosen_environment_is_like(page: Page, served: Any) -> None:
    enter(page, served, "/new")
    search = page.get_by_role("combobox", name="Environment")
    field = page.locator('[data-field="environment.id"]')

    search.fill("CartPole-v1")
    search.press("Escape")
    expect(field).to_contain_text("classic control, up to 500 steps · 1 seat")
    expect(field.locator("dd")).to_have_text(["4 numbers (float32)", "2 choices"])

    search.fill("pgx:tic_tac_toe")
    expect(field.locator("dd")).to_have_count(0)  # nothing of another stays
    search.press("Escape")
    expect(field).to_contain_text("JAX-native, in turns · 2 seats")
    expect(field.locator("dd").last).to_have_text("9 choices, the legal ones of them")


def test_the_form_shows_why_an_environment_cannot_be_looked_at(page: Page, served: Any) -> None:
    enter(page, served, "/new")
    search = page.get_by_role("combobox", name="Environment")
    field = page.locator('[data-field="environment.id"]')
    for typed, words in (("CartPole-v9", "did you mean CartPole-v1?"), ("os:system", "allow.code")):
        search.fill(typed)
        search.press("Escape")
        expect(field).to_contain_text(words)
