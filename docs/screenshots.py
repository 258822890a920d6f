"""Pictures of every page of the dashboard, made from a true server and true runs.

    python docs/screenshots.py                  # those of the docs, into docs/images
    python docs/screenshots.py --all DIR        # all pages and states, light and dark, into DIR
    python docs/screenshots.py --home DIR       # keep the runs there, and use them the next time

Trains for some minutes in a temporary home: two CartPoles to compare, a league of tic-tac-toe, a
lander that is changed while it runs, one run that fails, one that is paused, one that waits. Needs
`chromium`, and what `make test` installs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx2
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from rookery.client import Client, RemoteRun

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).resolve().parent / "images"
DESK, PHONE = (1440, 900), (390, 844)
THEMES = ("light", "dark")
KEPT = {  # the docs show these
    *("runs-light", "runs-dark", "run-light", "run-dark", "new-light", "compare-light"),
    *("league-light", "watch-dark", "runs-phone-light", "run-phone-dark"),
}
MOST_BYTES = 150_000
PATIENCE_MS = 120_000


class Shot(NamedTuple):
    """One picture: where, and what is done before it is taken."""

    name: str
    address: str  # after the `#`
    until: Callable[[Page], None]
    size: tuple[int, int] = DESK
    token: str | None = None  # another than the server's


class Server:
    """`rookery serve` on a home, as a person starts it."""

    def __init__(self, home: Path) -> None:
        self.environment = {**os.environ, "ROOKERY_HOME": str(home)}
        command = [sys.executable, "-m", "rookery", "serve", "--json", "--port", "0", "--cpus", "6"]
        self.process = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.url, self.token = said["url"], said["token"]
        while httpx2.get(f"{self.url}/readyz").status_code != 200:
            time.sleep(0.05)
        self.client = Client(self.url, self.token)

    def submit(self, *options: str) -> RemoteRun:
        """By the command line: the owner of a home may name any environment."""
        done = subprocess.run(
            [sys.executable, "-m", "rookery", "submit", *options, "--json"],
            env=self.environment,
            capture_output=True,
            check=True,
            timeout=300,
        )
        return self.client.run(json.loads(done.stdout)["run"])

    def close(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)


# --- the runs ------------------------------------------------------------------------------------


def make_runs(server: Server) -> None:
    """One after the other, so that a small machine gets there too."""
    reached = ["--until-return", "475", "--steps", "600_000"]
    quick = server.submit("CartPole-v1", *reached, "--seed", "1")
    quick.wait(timeout_s=600)
    slow = server.submit(
        "CartPole-v1", *reached, "--seed", "2", "--set", "algorithm.learning_rate=3e-4"
    )
    slow.wait(timeout_s=600)
    league = ["--self-play", "--set", "league.snapshot_every_steps=40_000"]
    league += ["--set", 'league.reference=["script:random","script:perfect"]']
    server.submit("pgx:tic_tac_toe", *league, "--steps", "320_000", "--seed", "1").wait()
    failing = server.submit("rookery.testing.envs:FailingEnv", "--env.at=2000")
    failing.wait(status=("failed",), timeout_s=300)


def start_runs(server: Server) -> None:
    """Those that go on while the pictures are taken."""
    paused = server.submit("Acrobot-v1", "--steps", "1_000_000_000", "--actors", "1")
    paused.wait(steps=20_000)
    paused.pause(reason="lunch")
    lander = server.submit("LunarLander-v3", "--steps", "1_000_000_000", "--seed", "1")
    lander.wait(steps=60_000)
    lander.scale(actors=2, reason="the learner waits for experience")
    lander.wait(steps=150_000)
    lander.set(learning_rate=2e-4, reason="the KL is high")
    lander.wait(steps=260_000)
    server.submit("Pendulum-v1", "--actors", "4", "--steps", "1_000_000")


# --- the pictures --------------------------------------------------------------------------------


def shots(server: Server) -> list[Shot]:
    by_environment: dict[str, list[str]] = {}
    for row in server.client.runs():
        by_environment.setdefault(row.environment, []).append(row.run)
    lander, league = by_environment["LunarLander-v3"][0], by_environment["pgx:tic_tac_toe"][0]
    pair, failed = by_environment["CartPole-v1"][:2], "rookery.testing.envs:FailingEnv"
    broken, paused = by_environment[failed][0], by_environment["Acrobot-v1"][0]
    return [
        Shot("runs", "/runs", rows_are_there),
        Shot("runs-phone", "/runs", rows_are_there, PHONE),
        Shot("runs-selected", "/runs", lambda page: select(page, pair)),
        Shot("runs-delete", "/runs", lambda page: ask_to_delete(page, pair[0])),
        Shot("runs-none-fits", "/runs", filter_for_nothing),
        Shot("new", "/new", fill_the_form),
        Shot("new-errors", "/new", make_mistakes),
        Shot("new-clone", f"/new?from={league}", form_is_there),
        Shot("run", f"/runs/{lander}", all_is_known),
        Shot("run-phone", f"/runs/{lander}", charts_are_drawn, PHONE),
        Shot("run-change", f"/runs/{lander}", try_a_change),
        Shot("run-finished", f"/runs/{pair[0]}", charts_are_drawn),
        Shot("run-failed", f"/runs/{broken}", charts_are_there),
        Shot("run-paused", f"/runs/{paused}", charts_are_drawn),
        Shot("run-unknown", "/runs/cartpole-nosuch", heading("is not here")),
        Shot("watch", f"/runs/{lander}/watch", watch_is_there),
        Shot("league", f"/runs/{league}/league", league_is_there),
        Shot("league-none", f"/runs/{lander}/league", league_is_settled),
        Shot("log", f"/runs/{lander}/log", log_is_there),
        Shot("log-failed", f"/runs/{broken}/log", log_is_there),
        Shot("config", f"/runs/{lander}/config", config_is_there),
        Shot("compare", f"/compare?runs={','.join(pair)}", charts_are_drawn),
        Shot("compare-none", "/compare", text("Select two or more")),
        Shot("nothing-here", "/nowhere", heading("There is nothing here")),
        Shot("token", "/runs", heading("A token is needed"), token=""),
        Shot("token-refused", "/runs", heading("refused"), token="rk_00000000_" + "x" * 43),
    ]


def heading(words: str) -> Callable[[Page], None]:
    return lambda page: expect(page.get_by_role("heading", name=words)).to_be_visible()


def text(words: str) -> Callable[[Page], None]:
    return lambda page: expect(page.get_by_text(words)).to_be_visible()


def rows_are_there(page: Page) -> None:
    expect(page.locator("[data-run]")).not_to_have_count(0)
    expect(page.locator("[data-run] svg path").nth(3)).to_be_attached()


def select(page: Page, runs: list[str]) -> None:
    rows_are_there(page)
    for run in runs:
        page.get_by_label(f"Select {run}").check()


def ask_to_delete(page: Page, run: str) -> None:
    rows_are_there(page)
    page.get_by_role("button", name=f"Delete {run}").click()
    expect(page.get_by_role("dialog")).to_contain_text("for good")


def filter_for_nothing(page: Page) -> None:
    rows_are_there(page)
    page.get_by_label("Filter").fill("chess")
    text("No run fits")(page)


def form_is_there(page: Page) -> None:
    expect(page.get_by_role("button", name="Create run")).to_be_visible()


def fill_the_form(page: Page) -> None:
    search = page.get_by_role("combobox", name="Environment")
    search.fill("lunar")
    expect(page.get_by_role("option").first).to_contain_text("LunarLander")
    search.press("ArrowDown")
    search.press("Enter")
    expect(search).to_have_value("LunarLander-v3")
    page.get_by_label("Until return").fill("200")
    page.get_by_label("Actors", exact=True).fill("2")
    page.get_by_role("button", name="Check").click()
    text("creates a run")(page)
    page.evaluate("scrollTo(0, 0)")


def make_mistakes(page: Page) -> None:
    search = page.get_by_role("combobox", name="Environment")
    search.fill("CartPole-v1")
    search.press("Escape")
    page.get_by_label("Learning rate").fill("7")
    page.get_by_label("Stop after steps").fill("-5")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("[data-field] [role=alert]").first).to_be_visible()


def charts_are_there(page: Page) -> None:
    expect(page.locator(".charts:not(.loading)")).to_be_visible()
    expect(page.locator(".tabs")).to_be_visible()


def all_is_known(page: Page) -> None:
    """Also how busy its machine is, which takes two looks."""
    charts_are_drawn(page)
    machine = page.locator("[data-what=machine]")
    expect(machine).to_contain_text(re.compile(r"Machine: \d"), timeout=PATIENCE_MS)


def charts_are_drawn(page: Page) -> None:
    expect(page.locator(".charts:not(.loading)")).to_be_visible()
    expect(page.locator("[data-metric] .read").first).to_be_visible()
    page.wait_for_function(
        """() => [...document.querySelectorAll('[data-metric]')]
          .filter((chart) => chart.getBoundingClientRect().top < innerHeight)
          .every((chart) => chart.querySelector('canvas') && !chart.querySelector('.none'))"""
    )


def try_a_change(page: Page) -> None:
    charts_are_drawn(page)
    page.get_by_role("slider", name="Actors").press("ArrowRight")
    expect(page.locator("#actors-effect")).to_contain_text("->")
    form = page.get_by_role("form", name="Hyperparameters")
    form.get_by_label("learning rate").fill("7")
    expect(form).to_contain_text("less than or equal")


def watch_is_there(page: Page) -> None:
    expect(page.locator(".tabs")).to_be_visible()
    expect(page.locator("main img")).to_be_visible()
    expect(page.locator("[data-what=step]")).to_have_text(re.compile(r"^([89]\d|\d{3,})$"))


def league_is_there(page: Page) -> None:
    expect(page.locator("table")).not_to_have_count(0)


def league_is_settled(page: Page) -> None:
    expect(page.locator(".tabs")).to_be_visible()
    page.wait_for_load_state("networkidle")


def log_is_there(page: Page) -> None:
    expect(page.get_by_role("region", name="Events").locator("li time").first).to_be_visible()
    expect(page.get_by_role("region", name="Audit").locator("td").nth(4)).to_be_visible()


def config_is_there(page: Page) -> None:
    expect(page.locator("pre")).to_contain_text("environment")


class Camera:
    """Takes pictures into a folder, and those of the docs into theirs."""

    def __init__(self, browser: Browser, server: Server, all_into: Path | None) -> None:
        self._browser, self._server, self._all_into = browser, server, all_into

    def take(self, shot: Shot) -> None:
        for theme in THEMES:
            name = f"{shot.name}-{theme}"
            if self._all_into is None and name not in KEPT:
                continue
            with self.opened(shot, theme) as page:
                shot.until(page)
                self.keep(page, name)

    @contextlib.contextmanager
    def opened(self, shot: Shot, theme: str) -> Iterator[Page]:
        """A tab with the token in it, as after the link."""
        width, height = shot.size
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            device_scale_factor=2 if shot.size == PHONE else 1,
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE_MS)
        token = self._server.token if shot.token is None else shot.token
        if token:
            context.add_init_script(f"sessionStorage.setItem('rookery.token', {json.dumps(token)})")
        page = context.new_page()
        page.goto(f"{self._server.url}/#{shot.address}")
        yield page
        context.close()

    def keep(self, page: Page, name: str) -> None:
        page.mouse.move(0, 0)
        page.wait_for_timeout(600)  # what appears softly has appeared
        picture = small(page.screenshot())
        folders = [self._all_into] if self._all_into else []
        folders += [IMAGES] if name in KEPT else []
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.webp").write_bytes(picture)
        is_large = len(picture) > MOST_BYTES
        print(f"{name} {len(picture) / 1000:.0f} kB{': too large' * is_large}", flush=True)


def small(png: bytes) -> bytes:
    """The same picture to the last pixel, in a third of the size."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "WEBP", lossless=True, method=6)
    return out.getvalue()


def lose_the_connection(camera: Camera, server: Server) -> None:
    """Last: the server is ended while its page is open."""
    run = next(row.run for row in server.client.runs() if row.environment == "LunarLander-v3")
    with camera.opened(Shot("lost", f"/runs/{run}", charts_are_drawn), "light") as page:
        charts_are_drawn(page)
        server.close()
        expect(page.locator(".connection")).to_have_attribute("data-state", "lost")
        camera.keep(page, "connection-lost-light")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", type=Path, dest="all_into", metavar="DIR")
    parser.add_argument("--home", type=Path, metavar="DIR")
    parser.add_argument("--only", default="", help="pictures whose name begins so")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("there is no browser: install chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with contextlib.ExitStack() as stack:
        home = arguments.home
        if home is None:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rookery-docs-")))
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        stack.callback(browser.close)
        server = Server(home)
        stack.callback(lambda: server.process.poll() is None and server.close())
        camera = Camera(browser, server, arguments.all_into)
        if not server.client.runs():
            camera.take(Shot("runs-empty", "/runs", text("No runs yet")))
            make_runs(server)
            start_runs(server)
        for shot in shots(server):
            if shot.name.startswith(arguments.only):
                camera.take(shot)
        if arguments.all_into is not None:
            lose_the_connection(camera, server)


if __name__ == "__main__":
    main()
