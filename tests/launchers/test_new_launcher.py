"""A new launcher is one file (toy_launcher.py) and one line in `config/kinds.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.config import kinds
from rookery.config.reading import build
from rookery.control.balance import balance
from rookery.control.carry import carry
from rookery.control.create import create_run
from rookery.control.details import last_ledger
from rookery.control.home import Home
from rookery.errors import ConfigError

CONFIG = {"environment": {"id": "CartPole-v1"}, "launcher": "threads", "stop": {"steps": 20_000}}


def test_a_run_with_a_new_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="launcher: input should be 'local' or 'inline'"):
        build(CONFIG)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setitem(kinds.LAUNCHERS, "threads", "toy_launcher:make_launcher")  # the one line

    home = Home(tmp_path / "home")
    run = create_run(home, build(CONFIG))
    state = carry(home, run)

    assert state is not None and state.status == "finished"
    bus = home.read_run_bus(state)
    ledger, _, _ = last_ledger(home, state, bus)
    assert bus is not None and ledger.trained >= 20_000 and balance(bus, ledger).exact
    bus.close()
    home.close()
