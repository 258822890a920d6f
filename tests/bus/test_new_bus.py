"""A new bus is one file (toy_bus.py) and one line in `config/kinds.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

import rookery
from rookery.config import kinds
from rookery.config.reading import build
from rookery.control.balance import balance
from rookery.control.details import last_ledger
from rookery.control.home import Home
from rookery.errors import ConfigError

ASKED = {"environment": {"id": "CartPole-v1"}, "bus": {"kind": "toy"}}


def test_a_run_over_a_new_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="bus: should be a mapping whose `kind` is one of"):
        build(ASKED)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setitem(kinds.BUSES, "toy", "toy_bus:ToyRunBus")  # the one line

    run = rookery.train(
        "CartPole-v1",
        launcher="inline",
        steps=10_000,
        config={"bus": {"kind": "toy"}},
        home=tmp_path,
        quiet=True,
    )

    home = Home(tmp_path)
    state = home.state(run.id)
    bus = home.read_run_bus(state)
    assert bus is not None and (tmp_path / run.id / "metrics.sqlite").exists()
    ledger, _, metrics = last_ledger(home, state, bus)
    assert metrics is not None and ledger.trained >= 10_000 and balance(bus, ledger).exact
    bus.close()
    home.close()


def test_its_config_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setitem(kinds.BUSES, "toy", "toy_bus:ToyRunBus")
    assert build(ASKED).bus.max_experience_mb == 64
    with pytest.raises(ConfigError, match=r"unknown config key 'bus\.partitions'"):
        build({**ASKED, "bus": {"kind": "toy", "partitions": 3}})
