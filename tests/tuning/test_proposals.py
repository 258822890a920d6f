"""Who proposes: within the space, the same again for the same, and better than chance."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from rookery.errors import MissingExtra
from rookery.tuning.proposals import Told, proposer
from rookery.tuning.space import Choice, Range, Search
from rookery.tuning.text import read_lines

SEARCH = read_lines(
    [
        "rate=log:1e-5..1e-1",
        "epochs=int:1..8",
        "size=logint:8..512",
        "gamma=0.9..0.999",
        "layers=[64,64]|[256]|null",
        "clip=0.1..0.3 if layers=[256]|null",
    ]
)
SAMPLERS = ("tpe", "random")


def is_within(search: Search, values: dict[str, Any]) -> bool:
    for key, value in values.items():
        domain = search[key].domain
        if isinstance(domain, Choice) and value not in domain.options:
            return False
        if isinstance(domain, Range) and not domain.low <= value <= domain.high:
            return False
        if isinstance(domain, Range) and isinstance(value, int) != domain.integer:
            return False
    return True


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_proposals_are_within_the_space_and_the_same_again(sampler: str) -> None:
    told: list[Told] = []
    for number in range(25):
        values = proposer(sampler, 3)(SEARCH, told, number)
        assert is_within(SEARCH, values), values
        assert ("clip" in values) == (values["layers"] in ([256], None))
        assert proposer(sampler, 3)(SEARCH, told, number) == values
        status = ("done", "pruned", "failed", "going")[number % 4]
        told.append(Told(values, status, 1.0 if status == "done" else None, {10: 0.5}))  # type: ignore[arg-type]
    seen = [each.values["layers"] for each in told]
    assert all(option in seen for option in ([64, 64], [256], None))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_another_seed_or_number_is_another_proposal(sampler: str) -> None:
    found = [proposer(sampler, seed)(SEARCH, [], n)["rate"] for seed in (0, 1) for n in (0, 1)]
    assert len(set(found)) == 4


def far_from_best(sampler: str, seed: int) -> float:
    """Of 30 trials of a bowl in two dimensions, the mean distance of the last ten."""
    search = read_lines(["x=log:1e-5..1e-1", "y=0..1"])
    told: list[Told] = []
    for number in range(30):
        values = proposer(sampler, seed)(search, told, number)
        distance = abs(math.log10(values["x"]) + 3) / 4 + abs(values["y"] - 0.25)
        told.append(Told(values, "done", -distance))
    return -sum(each.value or 0.0 for each in told[-10:]) / 10


def test_tpe_learns_where_it_is_good_and_random_does_not() -> None:
    tpe = [far_from_best("tpe", seed) for seed in range(3)]
    random = [far_from_best("random", seed) for seed in range(3)]
    assert max(tpe) < min(random)


def test_without_optuna_tpe_names_the_extra_and_random_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"rookery\[tune\]"):
        proposer("tpe", 0)
    assert is_within(SEARCH, proposer("random", 0)(SEARCH, [], 0))


def test_what_is_not_a_sweep_imports_no_optuna() -> None:
    code = (
        "import sys; from rookery.cli.main import _parse; import rookery.api;"
        "_parse(['sweep', 'CartPole-v1', '--trials', '3']);"
        "assert not {'optuna', 'rookery.tuning.sweep'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
