"""Which runs, in which order: one question for REST, MCP, Python, the command line and the page.

    query = RunQuery(search="nightly return>400", sort="algorithm.learning_rate")
    found = find_runs(query, runs)          # whoever has states and rows of all runs
    found.total, found.part(query, 0, 100)

What keys there are says `control/known_run.py`. Nothing here does I/O.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from rookery.config.reading import explained
from rookery.control.actions import Parameters
from rookery.control.known_run import COLUMNS, SHORT, KnownRun, config_keys, long_key, shown
from rookery.control.models import ListedRun, RunGroup
from rookery.control.run_state import Status
from rookery.errors import InputError, UnknownName

MOST_KEY, MOST_SEARCH, MOST_COLUMNS = 200, 500, 2000  # letters
MOST_WORDS = 20
NEWEST_FIRST = "created_s"

Test = Callable[[KnownRun], bool]
_TEST = re.compile(r"(?P<key>[\w.]+)(?P<sign>!=|<=|>=|=|<|>)(?P<value>.+)")
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class RunQuery(Parameters):
    """What is asked of the list of runs."""

    search: str = Field(
        default="",
        max_length=MOST_SEARCH,
        description="words that all stand in a run's id, name, tags, notes, environment, algorithm "
        "or status; or tests of any column or config key, like return>400 or seed=1",
    )
    status: Literal["", Status] = Field(default="", description="only runs of this status")
    environment: str = Field(default="", max_length=MOST_KEY, description="only runs of this one")
    tag: str = Field(default="", max_length=MOST_KEY, description="only runs with this tag")
    sort: str = Field(
        default=NEWEST_FIRST, max_length=MOST_KEY, description="by a column or any config key"
    )
    order: Literal["", "asc", "desc"] = Field(
        default="", description="empty: numbers from the greatest, words from a"
    )
    group: str = Field(
        default="",
        max_length=MOST_KEY,
        description="put together by tag, a column or any config key; with several tags a run "
        "stands under each",
    )
    columns: str = Field(
        default="",
        max_length=MOST_COLUMNS,
        description="config keys whose values are told too, with commas between",
    )

    @property
    def wanted(self) -> list[str]:
        """The config keys of `columns`."""
        keys = (part.strip() for part in self.columns.split(","))
        return list(dict.fromkeys(key for key in keys if key))

    @property
    def is_newest_first(self) -> bool:
        """The order in which runs were created: a place in it stays."""
        return long_key(self.sort) == NEWEST_FIRST and self.order != "asc" and not self.group


def run_query(**asked: str) -> RunQuery:
    """The same from loose parts; what is wrong with them is an error of one line."""
    try:
        return RunQuery.model_validate(asked)
    except ValidationError as error:
        raise explained(error) from None


class Placed(NamedTuple):
    """A run where the query puts it; with several tags it may stand in several groups."""

    run: KnownRun
    under: str


@dataclass(frozen=True)
class Found:
    """What a query found, in order."""

    placed: Sequence[Placed]
    total: int  # runs, each counted once
    groups: list[RunGroup]

    def part(self, query: RunQuery, begin: int, limit: int | None) -> list[ListedRun]:
        end = None if limit is None else begin + limit
        return [listed(placed, query) for placed in self.placed[begin:end]]


def find_runs(query: RunQuery, runs: Iterable[KnownRun]) -> Found:
    """Of runs, oldest first, those that are asked for, as they are asked for."""
    known = list(runs)
    _check_keys(query, known)
    tests = _tests(query)
    fit = [run for run in known if all(test(run) for test in tests)] if tests else known
    ordered = _sorted(fit, query)
    if not query.group:
        return Found([Placed(run, "") for run in ordered], len(fit), [])
    pairs = [(value, run) for run in ordered for value in _groups(run, query.group)]
    pairs.sort(key=lambda pair: _by_value(pair[0]))  # which keeps their order
    placed = [Placed(run, shown(value)) for value, run in pairs]
    counts = Counter(place.under for place in placed)
    groups = [RunGroup.model_construct(group=name, runs=n) for name, n in counts.items()]
    return Found(placed, len(fit), groups)


def listed(placed: Placed, query: RunQuery) -> ListedRun:
    """Built without validation, as rows are."""
    run = placed.run
    config = {key: run.config_value(key) for key in query.wanted}
    return ListedRun.model_construct(**run.row.__dict__, config=config, under=placed.under)


# --- which ---------------------------------------------------------------------------------------


def _tests(query: RunQuery) -> list[Test]:
    """All that a run has to pass."""
    words = query.search.lower().split()
    if len(words) > MOST_WORDS:
        raise InputError(f"search: {len(words)} words are more than {MOST_WORDS}: leave some out")
    tests = [_tested(word) for word in words]
    if query.status:
        tests.append(lambda run: run.row.status == query.status)
    if query.environment:
        tests.append(lambda run: run.row.environment == query.environment)
    if query.tag:
        tests.append(lambda run: query.tag in run.row.tags)
    return tests


def _tested(word: str) -> Test:
    """Whether a run has the word, or passes the test that it is."""
    found = _TEST.fullmatch(word)
    if found is None:
        return lambda run: word in run.text
    key, holds, text = found["key"], _SIGNS[found["sign"]], found["value"]

    def test(run: KnownRun) -> bool:
        return _passes(run.value(key), holds, text) or word in run.text

    return test


def _passes(value: Any, holds: Callable[[Any, Any], bool], text: str) -> bool:
    if isinstance(value, list):  # tags: any of them
        return any(_passes(part, holds, text) for part in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return holds in (operator.eq, operator.ne) and holds(shown(value).lower(), text)
    try:
        return holds(value, float(text))
    except ValueError:
        return False


# --- in which order ------------------------------------------------------------------------------


def _sorted(runs: list[KnownRun], query: RunQuery) -> list[KnownRun]:
    """The newer first among equals; runs without a value come last, whichever way round."""
    runs = runs[::-1]
    if long_key(query.sort) == NEWEST_FIRST:
        return runs[::-1] if query.order == "asc" else runs  # by the log, not by clocks
    values = [(_by_value(run.value(query.sort)), run) for run in runs]
    have = [pair for pair in values if pair[0] != _NOTHING]
    of_words = all(key[0] == _WORD for key, _ in have)
    order = query.order or ("asc" if of_words else "desc")
    have.sort(key=lambda pair: pair[0], reverse=order == "desc")
    return [run for _, run in have] + [run for key, run in values if key == _NOTHING]


_NUMBER, _WORD, _LAST = range(3)
_NOTHING = (_LAST, 0.0, "")


def _by_value(value: Any) -> tuple[int, float, str]:
    """Numbers before words, nothing last."""
    if isinstance(value, int | float):
        return _NOTHING if math.isnan(value) else (_NUMBER, float(value), "")
    text = "" if value is None else shown(value).lower()
    return (_WORD, 0.0, text) if text else _NOTHING


def _groups(run: KnownRun, key: str) -> Sequence[Any]:
    """The values under which a run stands."""
    value = run.value(key)
    return (value or [None]) if long_key(key) == "tags" else (value,)


def _check_keys(query: RunQuery, runs: Sequence[KnownRun]) -> None:
    """A key that no run has is a mistake, where there are runs."""
    if len(query.wanted) > MOST_WORDS:
        raise InputError(f"columns: at most {MOST_WORDS} config keys at a time")
    for key in (query.sort, query.group, *query.wanted):
        if not key or long_key(key) in COLUMNS or not runs:
            continue
        if all(run.config_value(key) is None for run in reversed(runs)):
            known = [*SHORT, *COLUMNS, *config_keys(runs[-1].state.config.get("config"))]
            if key not in known:  # nobody has set it: a bound, say
                raise UnknownName("column", key, known, "See `rookery config show`.")
