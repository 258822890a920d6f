"""axe-core looks at the page: it comes with what the page is built with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


class Axe:
    """Looks at what is shown, in light and in dark; collects what is wrong with it."""

    def __init__(self, page: Page) -> None:
        if not SCRIPT.is_file():
            missing = SCRIPT.relative_to(ROOT)
            pytest.fail(f"{missing} is missing: run npm --prefix web ci", pytrace=False)
        self._page = page
        self.wrong: list[str] = []
        self.checked = 0

    def look(self, state: str) -> None:
        if self._page.evaluate("typeof axe") == "undefined":
            # by the browser's own tools: the policy allows no other
            self._page.evaluate(SCRIPT.read_text())
        for theme, rules in (("light", None), ("dark", ["color-contrast"])):  # only colours differ
            self._page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
            found = self._page.evaluate("options => axe.run(document, options)", options)
            self.checked += found["testEngine"]["name"] == "axe-core"
            self.wrong += [
                f"{state}, {theme}: {rule['id']} ({rule['impact']}) at {node['target']}"
                for rule in found["violations"]
                for node in rule["nodes"]
            ]
