"""A browser, a server with runs of a module's own, and a tab for each test of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from tests.web.browsing import a_browser

    with a_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def served(shared_cli: Any) -> Any:
    return shared_cli.serve("--cpus", 16)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    from tests.web.browsing import a_tab

    with a_tab(browser) as tab:
        yield tab
