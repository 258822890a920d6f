"""The pages and the code agree: what they show is accepted by the real parser and models.

Nothing is carried out here; test_first_hour.py does that.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from rookery.bus.kafka.settings import KafkaSettings
from rookery.cli import main
from rookery.cli.config import config_from
from rookery.cli.parser import EPILOG, all_commands
from rookery.cli.sweep import _asked as sweep_asked
from rookery.cli.sweep import second_word, sweep_new
from rookery.config.reading import build, validate
from rookery.control.settings import FILE, Settings
from rookery.tuning.configs import Configs
from rookery.tuning.spec import read_settings
from rookery.tuning.text import read_mapping
from tests.docs import pages
from tests.docs.pages import PAGES, ROOT, Fence, fences

PROGRAMS = ("rookery", "make", "pip", "curl", "kcat", "npx", ".", "export")
SETTINGS, BUS_CONFIG = {"allow", "server", "trust_bus", "cpus", "ray"}, {"prefix", "tls", "sasl"}
SPANS = re.compile(r"`([^`\n]+)`")
FILES = re.compile(r"(?<![\w/.*-])((?:[a-z_]+/)+[\w.-]*\w(?:\.\w+|/)?)(?![\w*/])")
LINKS = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
OF_READERS = ("best.yaml", "sweep.yaml")  # made by a command before, or shown on the page
BASES = ("", "rookery", "docs")  # that a path on a page may be relative to

COMMANDS = [
    *((str(fence), command) for fence, command in pages.all_commands()),
    *(
        ("rookery --help", line.strip())
        for line in EPILOG.splitlines()
        if line[:10] == "  rookery "
    ),
]
TYPED = [pytest.param(c, id=f"{w}: {c}") for w, c in COMMANDS if c.startswith("rookery ")]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with --bus note it in the environment."""
    monkeypatch.chdir(ROOT)
    for name in ("ROOKERY_BUS", "ROOKERY_BUS_CONFIG"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name in ("KEY_PASSWORD", "ROOKERY_PASSWORD"):
        monkeypatch.setenv(name, "secret")


def test_there_is_something_to_look_at() -> None:
    assert len(TYPED) > 40 and len(PAGES) > 8


@pytest.mark.parametrize("page", PAGES)
def test_every_fence_is_of_a_language_that_is_tried(page: str) -> None:
    for fence in fences(page):
        assert fence.language in pages.LANGUAGES, f"{fence}: {fence.language!r}"


@pytest.mark.parametrize("command", TYPED)
def test_the_parser_takes_a_command(command: str) -> None:
    argv = pages.words(command)[1:]
    arguments = main._parse(argv)
    if getattr(arguments, "config", None) in OF_READERS:
        return
    if arguments.name in ("train", "submit", "config"):
        assert config_from(arguments).environment.id
    if arguments.verb is sweep_new:
        base, settings = sweep_asked(arguments)
        assert Configs(base, read_mapping(settings.search)).plain.environment.id


def test_other_commands_are_of_programs_that_are_known() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for where, command in COMMANDS:
        program, *rest = pages.words(command)
        assert program in PROGRAMS, f"{where}: {command}"
        assert program != "make" or rest[0] in targets, f"{where}: {command}"


@pytest.mark.parametrize("page", PAGES)
def test_a_command_in_the_text_has_a_verb_and_options_that_there_are(page: str) -> None:
    parser = all_commands().parser
    verbs: Any = next(a for a in parser._actions if a.choices and "train" in a.choices).choices
    for span in SPANS.findall(pages.prose(page)):
        if not span.startswith("rookery ") or "|" in span:
            continue
        first, *rest = second_word(shlex.split(span.replace("...", ""))[1:])
        assert first in verbs or first.startswith("-"), f"{page}: {span}"
        own = verbs.get(first, parser)
        below = [a.choices for a in own._actions if isinstance(a.choices, dict)]
        own = below[0].get(rest[0], own) if below and rest else own
        for option in (word.partition("=")[0] for word in rest if word.startswith("--")):
            known = option in own._option_string_actions or option.startswith("--env.")
            assert known, f"{page}: {span}"


YAML = [pytest.param(f, id=str(f)) for page in PAGES for f in fences(page, "yaml")]


@pytest.mark.parametrize("fence", YAML)
def test_a_config_is_valid(fence: Fence, tmp_path: Path) -> None:
    found = yaml.safe_load(fence.text)
    if found.keys() & SETTINGS:
        (tmp_path / FILE).write_text(fence.text)
        Settings.load(tmp_path)
    elif found.keys() <= BUS_CONFIG:
        (tmp_path / "kafka.yaml").write_text(fence.text)
        for name in ("ca.pem", "me.pem", "me.key"):
            (tmp_path / name).write_text("")
        KafkaSettings.of("kafka://broker:9093", str(tmp_path / "kafka.yaml"))
    elif "sweep" in found:
        settings = read_settings(found.pop("sweep"))
        Configs(found, read_mapping(settings.search))
    else:  # a part of a run's config: the rest is left out, not wrong
        policies = {name: {} for name in ("aggressive", "defensive") if name in fence.text}
        rest = {"environment": {"id": "pgx:connect_four"}, "stop": {"steps": 1}}
        if policies and "policies" not in found:
            rest["policies"] = policies
        validate(build({**rest, **found}).model_dump(mode="json"))


@pytest.mark.parametrize("page", PAGES)
def test_programs_compile_and_json_is_json(page: str) -> None:
    for fence in fences(page, "python"):
        compile(fence.text, str(fence), "exec", dont_inherit=True)
    for fence in fences(page, "json"):
        for server in json.loads(fence.text).get("mcpServers", {}).values():
            if "command" in server:
                assert server["command"] == "rookery"
                main._parse(server["args"])


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


EVERY_PAGE = [*PAGES, "benchmarks/README.md", "CHANGELOG.md"] + [
    str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/decisions/*.md"))
]


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_links_lead_somewhere(page: str) -> None:
    for link in (a or b for a, b in LINKS.findall(pages.prose(page))):
        if link.startswith(("http:", "https:")):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page}: {link}"
        assert not anchor or anchor in anchors(target), f"{page}: {link}"


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    spans = [span for span in SPANS.findall(pages.prose(page)) if span[0] != '"']
    for span in spans:
        for name in FILES.findall(span):
            top = name.split("/")[0]
            ours = top in os.listdir(ROOT) or top in os.listdir(ROOT / "rookery")
            if not ours or "NAME" in name:
                continue  # a path of somebody's own
            assert any((ROOT / base / name).exists() for base in BASES), f"{page}: {name}"


def test_a_benchmark_has_the_options_that_its_page_shows() -> None:
    shown = re.findall(
        r"^    python (benchmarks/\w+\.py)(.*)$", pages.text_of("benchmarks/README.md"), re.M
    )
    assert shown
    for script, rest in shown:
        text = (ROOT / script).read_text()
        for option in re.findall(r"--[\w-]+", rest):
            assert f'"{option}"' in text, f"{script} {option}"
