"""Runs by what people type: an id, a unique prefix of one, `last`, or a name that only one has,
which goes before prefixes; the same at every door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.errors import InputError, UnknownName

NEWEST = 200  # runs whose names a wrong one is compared with


class AmbiguousRun(UnknownName):
    """A prefix of several runs, or what several are called, and so the name of none."""

    def __init__(self, name: str, matches: Sequence[str]) -> None:
        self.kind, self.name, self.nearest = "run", name, tuple(matches[:5])
        shown = ", ".join(self.nearest)
        InputError.__init__(
            self, f"run {name!r} is ambiguous: it could be {shown}; give more letters"
        )


def find_run(name: str, runs: Mapping[str, str], where: str = "here") -> str:
    """Its id among those that there are, with their names, the oldest first."""
    if name in runs:
        return name
    if name == "last":
        if not runs:
            raise UnknownName("run", name, (), f"there is none {where} yet: run `rookery train`")
        return next(reversed(list(runs)))
    matches = [run for run, called in runs.items() if called == name] or [
        run for run in runs if run.startswith(name)
    ]
    if len(matches) > 1:
        raise AmbiguousRun(name, matches)
    if not matches:
        raise UnknownName("run", name, list(runs)[-NEWEST:], "Run `rookery runs list`.")
    return matches[0]
