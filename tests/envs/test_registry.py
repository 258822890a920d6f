"""Environments by name: what is found, and what is said when it is not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.envs import SOLO_SEAT, registry
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.envs.jax.environment import SteppedCompiled
from rookery.envs.pettingzoo.environment import PettingZooEnvironment
from rookery.errors import ConfigError, InputError, MissingExtra, UnknownName
from rookery.spaces import Categorical
from rookery.testing.envs import CountingEnv
from rookery.testing.games import DwindlingGame


@pytest.mark.parametrize(
    ("id", "kind"),
    [
        ("CartPole-v1", GymnasiumEnvironment),
        ("rookery.testing.envs:CountingEnv", GymnasiumEnvironment),
        ("gymnax:CartPole-v1", SteppedCompiled),
        ("rookery.testing.envs:CountingCompiled", SteppedCompiled),
        ("pgx:tic_tac_toe", SteppedCompiled),
        ("pettingzoo:connect_four_v3", PettingZooEnvironment),
        ("pettingzoo:simple_tag_v3", PettingZooEnvironment),
        ("rookery.testing.games:DwindlingGame", PettingZooEnvironment),
        ("rookery.testing.games:ComingAndGoing", PettingZooEnvironment),
    ],
)
def test_make_and_describe_agree(id: str, kind: type) -> None:
    env = registry.make(id, 2)
    assert isinstance(env, kind)
    assert registry.describe(id) == env.spec and env.spec.id == id
    assert env.spec.compiled == (kind is SteppedCompiled)
    env.close()


def test_a_registered_factory_is_found_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("maze", lambda length=3: CountingEnv(length, actions=4))
    spec = registry.describe("maze", {"length": 2})
    assert spec.seats[SOLO_SEAT].action == Categorical(4)
    assert spec.seats[SOLO_SEAT].observation[0].shape == (3,)
    assert "maze" in [info.id for info in registry.search("maze")]
    registry.register("dwindling", lambda fail_at=None: DwindlingGame(fail_at=fail_at))
    assert list(registry.describe("dwindling", {"fail_at": 3}).seats) == ["red", "green", "blue"]


def test_a_module_of_the_current_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_worlds.py").write_text(
        "from rookery.testing.envs import CountingEnv\n"
        "class World(CountingEnv):\n    pass\n"
        "def build(size):\n    return CountingEnv(size)\n"
        "def wrong():\n    return 3\n"
    )
    (tmp_path / "my_broken.py").write_text("def f(:\n")
    (tmp_path / "my_needy.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert registry.describe("my_worlds:World", {"length": 2}).seats
    assert registry.describe("my_worlds:build", {"size": 2}).seats
    for id, message in [
        ("my_worlds:Wurld", "my_worlds has no 'Wurld'; did you mean World"),
        ("my_worlds:build", "needs its option 'size': --env.size="),
        ("my_worlds:wrong", "is made as a int; it must be a gymnasium.Env"),
        ("my_words:World", "there is no module 'my_words'"),
        ("my_broken:World", "importing my_broken raised SyntaxError"),
        ("my_needy:World", "needs the module 'nowhere_to_be_found'"),
        (":World", "module:Class"),
    ]:
        with pytest.raises(InputError) as caught:
            registry.describe(id)
        assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("id", "nearest"),
    [
        ("CartPole-v9", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CatPole-v1", "CartPole-v1"),
        ("LunarLander-v2", "LunarLander-v3"),
        ("gymnax:Brekout-MinAtar", "gymnax:Breakout-MinAtar"),
        ("pgx:conect_four", "pgx:connect_four"),
        ("pettingzoo:connect_four_v2", "pettingzoo:connect_four_v3"),
        ("pettingzoo:simple_spred_v3", "pettingzoo:simple_spread_v3"),
    ],
)
def test_an_unknown_id_is_told_with_the_nearest(id: str, nearest: str) -> None:
    for call in (registry.describe, lambda id: registry.make(id, 1)):
        with pytest.raises(UnknownName) as caught:
            call(id)
        assert caught.value.nearest[0] == nearest
        assert "rookery envs" in str(caught.value) and "\n" not in str(caught.value)


def test_a_wrong_version_is_answered_by_the_right_one_alone() -> None:
    with pytest.raises(UnknownName) as caught:
        registry.describe("CartPole")
    assert caught.value.nearest == ("CartPole-v1",)


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Make a package look as if it were not installed."""
    for name in [m for m in sys.modules if m == package or m.startswith(package + ".")]:
        monkeypatch.delitem(sys.modules, name)

    class Hiding:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            if name == package or name.startswith(package + "."):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Hiding, *sys.meta_path])


@pytest.mark.parametrize(
    ("id", "package", "extra"),
    [
        ("LunarLander-v3", "Box2D", "box2d"),
        ("Ant-v5", "mujoco", "mujoco"),
    ],
)
def test_a_missing_package_names_its_extra(
    id: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, package)
    for module in ("gymnasium.envs.box2d", "gymnasium.envs.mujoco"):
        for name in [m for m in sys.modules if m.startswith(module)]:
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=rf"rookery\[{extra}\]") as caught:
        registry.describe(id)
    assert caught.value.extra == extra


def test_missing_packages_name_their_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    missing = ("gymnax", "ale_py", "pgx", "pettingzoo", "mpe2")
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n in missing else found(n))
    for id, extra in (
        ("gymnax:CartPole-v1", "gymnax"),
        ("ALE/Pong-v5", "atari"),
        ("pgx:chess", "games"),
        ("pettingzoo:chess_v6", "games"),
        ("pettingzoo:simple_tag_v3", "games"),
    ):
        with pytest.raises(MissingExtra) as caught:
            registry.describe(id)
        assert caught.value.extra == extra
    sources = {info.source for info in registry.search()}
    assert sources <= {"gymnasium", "registered"}  # the latter by other tests of this process


@pytest.mark.parametrize(
    ("id", "options", "message"),
    [
        ("FrozenLake-v1", {"is_sliperry": False}, "did you mean is_slippery"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "cannot be made with map_name='9x9'"),
        ("CartPole-v1", {"suton_barto_reward": True}, "did you mean sutton_barto_reward"),
        ("rookery.testing.envs:CountingEnv", {"lenght": 3}, "did you mean length"),
        ("rookery.testing.envs:CountingCompiled", {"lenght": 3}, "did you mean length"),
        ("gymnax:CartPole-v1", {"gravty": 3}, "did you mean gravity"),
        ("pgx:connect_four", {"rows": 3}, "has no option 'rows'"),
        ("pettingzoo:simple_spread_v3", {"max_cycle": 9}, "did you mean max_cycles"),
        ("pettingzoo:simple_spread_v3", {"max_episode_steps": 9}, "no option 'max_episode_steps'"),
        ("pettingzoo:simple_spread_v3", {"N": "two"}, "cannot be made with N='two'"),
        ("rookery.testing.games:DwindlingGame", {"fail": 3}, "did you mean fail_at"),
        ("rookery.testing.games:DwindlingGame", {"max_episode_steps": 3}, "has no option"),
    ],
)
def test_a_wrong_option_is_told(id: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        registry.describe(id, options)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_not_compiled_has_no_compiled_form() -> None:
    assert registry.make_compiled("gymnax:CartPole-v1").spec.compiled
    with pytest.raises(InputError, match="not JAX-native"):
        registry.make_compiled("CartPole-v1")


def test_search_lists_newest_versions_once_without_copies() -> None:
    ids = [info.id for info in registry.search()]
    assert {"CartPole-v1", "LunarLander-v3", "Ant-v5", "gymnax:Breakout-MinAtar"} <= set(ids)
    assert len(ids) == len(set(ids))
    assert not [i for i in ids if i.startswith(("phys2d/", "tabular/", "GymV2"))]
    assert "CartPole-v0" not in ids and "Ant-v4" not in ids
    found = [(i.id, i.source) for i in registry.search("BREAKOUT")]
    assert found == [("gymnax:Breakout-MinAtar", "gymnax"), ("pgx:minatar-breakout", "pgx")]
    chess = {(i.id, i.source) for i in registry.search("chess")}
    assert {("pgx:chess", "pgx"), ("pettingzoo:chess_v6", "pettingzoo")} <= chess
    assert {"pettingzoo:simple_tag_v3", "pettingzoo:pistonball_v6", "pgx:go_9x9"} <= set(ids)
    assert "pgx:bridge_bidding" not in ids  # it needs data of its own
    assert all(i.description for i in registry.search())


def test_search_does_not_import_jax_and_the_registry_imports_nothing_heavy() -> None:
    code = (
        "import sys; import rookery.envs.registry as r;"
        "assert 'gymnasium' not in sys.modules, 'gymnasium';"
        "assert len(r.search()) > 40;"
        "heavy = ['jax', 'pgx', 'pettingzoo', 'pygame', 'mpe2'];"
        "assert not [name for name in heavy if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_describing_a_game_imports_that_game_alone() -> None:
    code = (
        "import sys; import rookery.envs.registry as r;"
        "r.describe('pettingzoo:simple_spread_v3');"
        "unneeded = ['jax', 'chess', 'rlcard', 'pettingzoo.classic', 'mpe2.simple_tag'];"
        "assert not [name for name in unneeded if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_describing_an_environment_loads_only_what_describing_needs() -> None:
    code = (
        "import sys; import rookery.envs.registry as r;"
        "r.describe('CartPole-v1');"
        "unneeded = ['jax', 'Box2D', 'mujoco', 'ale_py', 'rookery.envs.gymnasium.slots'];"
        "assert not [name for name in unneeded if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
