"""Rookery from Python, in a script or a notebook.

run = rookery.train("CartPole-v1", until_return=475)
policy = run.policy()
action = policy.act(observation)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import numpy as np

from rookery import seeds
from rookery.algorithms.networks import Network
from rookery.checkpoints.policies import load_policy
from rookery.config.code import refuse_while_imported
from rookery.config.models import RunConfig
from rookery.config.parent import parent_named
from rookery.config.reading import build, meant_key, merged_layers, nested
from rookery.control.home import Home
from rookery.errors import InputError, RookeryError, nearest_names
from rookery.errors.words import ARGUMENTS
from rookery.launchers.standby import Standby
from rookery.messages import Command
from rookery.players.policy import PolicyPlayer
from rookery.players.seat_map import SeatFunction
from rookery.spaces import Categorical, Leaf, MultiCategorical

if TYPE_CHECKING:
    from rookery.launchers.ray.link import Links
    from rookery.tuning.sweep import Sweep


P = ParamSpec("P")
T = TypeVar("T")


def _suggesting(function: Callable[P, T]) -> Callable[P, T]:
    """Says which argument or key was meant by one that there is not."""
    own = signature(function).parameters

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs.keys() - own.keys():
            raise _unknown_argument(function.__name__, name, kwargs[name], own)
        return function(*args, **kwargs)

    return called


def _unknown_argument(function: str, name: str, value: Any, own: Collection[str]) -> InputError:
    arguments = {key: argument for argument, key in ARGUMENTS.items()}
    key = meant_key(name)
    if key is not None:
        argument = {**arguments, "environment.id": "environment"}.get(key)
        near = f"{argument}={value!r}" if argument else f"config={nested(key, value)!r}"
    else:
        near = ", ".join(nearest_names(name, own, 1))
    hint = f"; did you mean {near[:200]}?" if near else f"; see help(rookery.{function})"
    return InputError(f"rookery.{function} takes no argument {name!r}{hint}")


@_suggesting
def train(
    environment: str,
    *,
    algorithm: str | None = None,
    actors: int | Literal["auto"] | None = None,
    envs_per_actor: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    until_return: float | None = None,
    seed: int | None = None,
    launcher: str | None = None,
    seats: dict[str, Any] | None = None,
    seat_map: SeatFunction | str | None = None,
    env: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    name: str = "",
    tags: Sequence[str] = (),
    notes: str = "",
    group: str = "",
    parent: str = "",
    home: str | Path | None = None,
    quiet: bool = False,
) -> Run:
    """Train until the target or limit is reached, and return the run.

    `seats` maps seats or patterns to players; `seat_map` is a function `(seat, episode) -> player`
    instead, or its "module:function". `env` is passed to the environment; `config` is a nested
    mapping of any other config keys, as in YAML. `name`, `tags`, `notes` and `group` are for
    people, to find it by. `parent`, RUN or RUN@VERSION, is a run to begin with. Raises RookeryError
    if the run fails; Ctrl-C stops it after a checkpoint.
    """
    from rookery.control.carry import connected
    from rookery.control.create import create_run, labels_of

    refuse_while_imported("rookery.train")
    flags: dict[str, Any] = {
        "algorithm": {"kind": algorithm},
        "actors": {"count": actors, "envs_per_actor": envs_per_actor},
        "stop": {"steps": steps, "minutes": minutes, "until_return": until_return},
        "seed": seed,
        "launcher": launcher,
        "seats": seats,
        "seat_map": seat_map if isinstance(seat_map, str) else None,
        "parent": parent_named(parent) if parent else {},
    }
    asked = _given({**flags, "environment": {"id": environment, "kwargs": env}})
    place = _place(home)
    built = build(config or {}, asked)
    function = None if isinstance(seat_map, str) else seat_map
    if function is not None and built.launcher != "inline":
        raise InputError(
            "seat_map is a function of this process: pass launcher='inline', or name it as "
            "'module:function' so that other processes can import it"
        )
    standby = Standby(built.learner.threads) if built.launcher == "local" else None
    try:
        with connected(place, built) as links:
            run = create_run(place, built, function, labels_of(name, tags, notes, group))
            return _carry(place, run, quiet, links, standby, function)
    finally:
        if standby is not None:
            standby.close()


def load(run: str = "last", home: str | Path | None = None) -> Run:
    """A run by its id, a unique prefix of it, or `last`."""
    place = _place(home)
    return Run(place, place.find(run))


@_suggesting
def sweep(
    environment: str,
    *,
    search: Mapping[str, Any],
    trials: int = 20,
    seeds: int = 1,
    sampler: str = "tpe",
    scheduler: str = "none",
    generations: int = 10,
    burn_in: float = 0.25,
    episodes: int = 100,
    jobs: int | None = None,
    algorithm: str | None = None,
    actors: int | Literal["auto"] | None = None,
    envs_per_actor: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    until_return: float | None = None,
    seed: int | None = None,
    launcher: str | None = None,
    seats: dict[str, Any] | None = None,
    env: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    home: str | Path | None = None,
    quiet: bool = False,
    carry: bool = True,
) -> Sweep:
    """Search for a good config, and return the sweep: `.best.config`, `.table()`, `.importance()`.

    `search` maps config keys to what they may be: {"algorithm.learning_rate": "log:1e-5..1e-2",
    "network.hidden": [[64, 64], [256, 256]]}, as docs/tuning.md has it. Each trial is trained with
    so many `seeds` and judged by greedy fresh `episodes`. `jobs`: runs at a time; by default as
    many as there are CPUs for. The rest is as in `train`. Ctrl-C stops it: `.resume()` goes on,
    and begins one that was only written down (`carry=False`).
    """
    from rookery.tuning.spec import read_settings
    from rookery.tuning.sweep import begin

    refuse_while_imported("rookery.sweep")
    flags: dict[str, Any] = {
        "algorithm": {"kind": algorithm},
        "actors": {"count": actors, "envs_per_actor": envs_per_actor},
        "stop": {"steps": steps, "minutes": minutes, "until_return": until_return},
        "seed": seed,
        "launcher": launcher,
        "seats": seats,
    }
    asked = _given({**flags, "environment": {"id": environment, "kwargs": env}})
    settings = read_settings(
        {
            "search": dict(search),
            "trials": trials,
            "seeds": seeds,
            "sampler": sampler,
            "scheduler": scheduler,
            "generations": generations,
            "burn_in": burn_in,
            "episodes": episodes,
            "jobs": jobs,
        }
    )
    made = begin(_place(home), merged_layers(config or {}, asked), settings)
    if quiet or not carry:
        if carry:
            made.carry()
        return made
    from rookery.cli.sweep_progress import SweepProgress

    with SweepProgress(made.id, sys.stdout) as progress:
        made.carry(progress)
    return made


def load_sweep(name: str = "last", home: str | Path | None = None) -> Sweep:
    """A sweep by its id, a unique prefix of it, or `last`."""
    from rookery.tuning.sweep import find

    return find(_place(home), name)


def match(
    environment: str,
    a: str,
    b: str,
    *,
    games: int = 100,
    seed: int = 0,
    sampled: bool = False,
    env: dict[str, Any] | None = None,
    home: str | Path | None = None,
) -> dict[str, Any]:
    """Let two players meet, both ways round; what `rookery match --json` prints.

    Each is a run ("last", an id, "RUN@340") or any other player ("script:random"). Runs play their
    likeliest actions, or by chance if `sampled`.
    """
    from rookery.evaluation.kept_games import keeper
    from rookery.evaluation.match import play_match

    place, options = _place(home), env or {}
    tape = keeper(place, environment, options)
    return play_match(place, environment, a, b, games, seed, sampled, options, tape)


class Run:
    """A run: what it is, how it went, and its policy."""

    def __init__(self, home: Home, run: str) -> None:
        self._home = home
        self.id = run

    def __repr__(self) -> str:
        return f"Run({self.id!r}, status={self.status!r}, env_steps={self.env_steps:,})"

    @property
    def config(self) -> RunConfig:
        return self._home.config(self._home.state(self.id))

    @property
    def status(self) -> str:
        from rookery.control.queries import status_now

        return status_now(self._home.state(self.id), self._home.is_owned(self.id))

    @property
    def env_steps(self) -> int:
        return int(self.show()["env_steps"])

    @property
    def mean_return_100(self) -> float | None:
        value = self.show()["mean_return_100"]
        return None if value is None else float(value)

    def show(self) -> dict[str, Any]:
        """What `rookery runs show --json` prints."""
        from rookery.control.details import show

        return show(self._home, self.id)

    def resume(
        self,
        quiet: bool = False,
        seat_map: SeatFunction | None = None,
        *,
        steps: int | None = None,
        minutes: float | None = None,
        until_return: float | None = None,
    ) -> Run:
        """Go on from the newest checkpoint, in this process; one that has reached its bound needs a
        new one, which counts from its beginning."""
        from rookery.control.carry import connected, going_on

        refuse_while_imported("Run.resume")
        bounds = {"steps": steps, "minutes": minutes, "until_return": until_return}
        ask = going_on(self._home, self.id, _given(bounds))
        with connected(self._home, self.config) as links:
            return _carry(self._home, self.id, quiet, links, seat_function=seat_map, ask=ask)

    def evaluate(self, episodes: int = 100, seed: int = 0) -> dict[str, Any]:
        """Greedy and sampled play of fresh episodes."""
        from rookery.evaluation.episodes import evaluate_run

        return evaluate_run(self._home, self.id, episodes, seed)

    def ladder(self) -> list[dict[str, Any]]:
        """Everyone who played in the run's league or in a match with it, the strongest first."""
        from rookery.evaluation.ladder import ladder

        rows: list[dict[str, Any]] = ladder(self._home, self.id)["players"]
        return rows

    def policy(self, greedy: bool = True, name: str | None = None) -> Policy:
        """The newest checkpoint's policy; of several, the first unless one is named."""
        frozen = load_policy(self._home.files(self.id), policy=name)
        return Policy(frozen.network, frozen.arrays, greedy, self.config.seed)


class Policy:
    """Weights that act: `policy.act(observation) -> action`, as the environment takes it."""

    def __init__(
        self, network: Network, arrays: dict[str, np.ndarray], greedy: bool, seed: int
    ) -> None:
        self._network, self._arrays = network, arrays
        self._player = PolicyPlayer(network, greedy=greedy)
        self._rng = seeds.generator(seed, "evaluation", 0, 0, 2)

    def act(self, observation: Any, mask: Any = None) -> Any:
        """An action for one observation, in the shapes of the environment's own spaces."""
        leaves = {
            leaf.path: np.asarray(_at(observation, leaf), leaf.dtype)[None]
            for leaf in self._network.spec.observation
        }
        legal = None if mask is None else np.asarray(mask, np.bool_)[None]
        decision = self._player.act(self._arrays, leaves, legal, {}, self._rng)
        action = decision.to_environment[0]
        space = self._network.spec.action
        if isinstance(space, Categorical):
            return int(action) + space.start
        if isinstance(space, MultiCategorical) and space.starts:
            return action + np.asarray(space.starts)
        return action


def _place(home: str | Path | None) -> Home:
    return Home(Path(home).absolute()) if home is not None else Home.default()


def _at(observation: Any, leaf: Leaf) -> Any:
    for part in leaf.path.split(".") if leaf.path else ():
        observation = (
            observation[int(part)] if isinstance(observation, tuple) else observation[part]
        )
    return observation


def _carry(
    home: Home,
    run: str,
    quiet: bool,
    links: Links,
    standby: Standby | None = None,
    seat_function: SeatFunction | None = None,
    ask: Command | None = None,
) -> Run:
    from rookery.cli.progress import Progress
    from rookery.control.carry import carry
    from rookery.control.queries import result_here

    began = time.monotonic()
    if quiet:
        state = carry(home, run, None, standby, seat_function, ask, links=links)
    else:
        before = home.state(run)
        progress = Progress(run, sys.stdout, home.config(before), before)
        with progress:
            state = carry(home, run, progress, standby, seat_function, ask, links=links)
        if state is not None:
            progress.summary(result_here(home, state, began))
    if state is not None and state.status == "failed":
        raise RookeryError(f"run {run} failed: {state.reason}")
    return Run(home, run)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """The same mapping without what was left out."""
    kept = {}
    for key, value in values.items():
        inner = _given(value) if isinstance(value, dict) and key != "kwargs" else value
        if inner not in (None, {}):
            kept[key] = inner
    return kept
