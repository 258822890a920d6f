"""What the tests of the page share: a person's ways through it, and how to wait for it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no browser: apt install chromium", allow_module_level=True)

LONG = 60_000  # ms; workers start JAX, on a machine that has other things to do
HTML = '<img src=x onerror="document.title=1"><b>bold</b>'
SHORT = {"environment": {"id": "CartPole-v1"}, "stop": {"steps": 12_000}}
ENDLESS = {**SHORT, "stop": {"steps": 100_000_000}}


@contextmanager
def a_browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def a_tab(browser: Browser, **options: Any) -> Iterator[Page]:
    """A tab; nothing that the policy forbids, no error and no dialog may come up in it."""
    context = browser.new_context(**{"viewport": {"width": 1500, "height": 1000}, **options})
    context.set_default_timeout(LONG)
    expect.set_options(timeout=LONG)
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    tab.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    tab.on("console", lambda said: wrong.append(said.text) if "Policy" in said.text else None)
    tab.on("request", lambda asked: wrong.append(asked.url) if is_foreign(asked.url) else None)
    yield tab
    context.close()
    assert not wrong


def is_foreign(url: str) -> bool:
    return not re.match(r"(http|ws)://127\.0\.0\.1:|data:|blob:", url)


def enter(page: Page, served: Any, place: str = "/runs") -> None:
    """By the link, as a person does; the token does not stay in the address."""
    page.goto(f"{served.url}/#token={served.token}")
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    assert served.token not in page.url
    page.goto(f"{served.url}/#{place}")


def status(page: Page) -> Locator:
    return page.locator(".head .status")


def steps(page: Page) -> int:
    return int(page.locator(".figures dd").first.inner_text().replace(",", ""))


def until(page: Page, condition: Callable[[], Any]) -> None:
    """Look again after each thing that the stream says, which the page shows by its charts."""
    seen = page.locator(".charts")
    while not condition():
        before = seen.get_attribute("data-version")
        expect(seen).not_to_have_attribute("data-version", before)


def picture(page: Page, metric: str) -> str:
    found = page.locator(f'[data-metric="{metric}"] canvas').evaluate("c => c.toDataURL()")
    assert isinstance(found, str)
    return found


def actors(page: Page) -> Locator:
    return page.locator('[data-worker^="actor"][data-alive="true"]')
