"""Pgx games as compiled environments.

Pgx numbers its players at random in every episode; a seat here is a place in the order of play, so
`player_0` always moves first, as in PettingZoo. The NEXT_STEP convention is kept as in `gymnax`:
Pgx itself leaves a finished game where it is.
"""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from gymnasium import spaces

from rookery.envs import NO_OPTIONS, CompiledStep, Options, Picture
from rookery.envs.failures import first_line
from rookery.envs.gymnasium.make import check_options
from rookery.envs.jax.environment import register_pytrees, template_type
from rookery.envs.jax.families import pgx_ids
from rookery.envs.observation_spaces import read_space, travel_dtype
from rookery.errors import InputError, MissingExtra, UnknownName
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec

PREFIX = "pgx:"


class PgxEnvironment:
    """`pgx:NAME`; options are the arguments of the game's constructor, such as Go's komi."""

    def __init__(self, id: str, kwargs: Options = NO_OPTIONS) -> None:
        register_pytrees()
        self._env = _make(id, kwargs)
        self._players = int(self._env.num_players)
        self._masked = not id.startswith(f"{PREFIX}minatar-")  # every action is legal in those
        template = jax.eval_shape(self._env.init, jax.random.key(0))
        leaf = _leaf(*template_type(template.observation))
        self._dtype = leaf.dtype
        head = Categorical(int(template.legal_action_mask.shape[0]))
        seat = SeatSpec((leaf,), head, masked=self._masked)
        self.spec = EnvironmentSpec(
            id,
            {f"player_{number}": seat for number in range(self._players)},
            compiled=True,
            can_save=True,
            simultaneous=self._players == 1,
        )

    def reset(self, key: Any) -> tuple[Any, CompiledStep]:
        """A new episode; the state is (the game, who plays in each seat, whether it has ended)."""
        game, order = self._begin(key)
        no = jnp.zeros((), bool)
        return (game, order, no), self._told(game, order, jnp.zeros_like(game.rewards), no, no)

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, CompiledStep]:
        """One step, or the beginning of a new episode where the last one has ended."""
        game, order, ended = state
        step_key, reset_key = jax.random.split(key)
        played = self._env.step(game, jnp.asarray(action, jnp.int32), step_key)
        fresh = self._begin(reset_key)
        game, order = jax.tree.map(
            lambda new, old: jnp.where(ended, new, old), fresh, (played, order)
        )
        rewards = jnp.where(ended, 0, played.rewards)
        terminated = played.terminated & ~ended
        return (game, order, terminated), self._told(game, order, rewards, terminated, ended)

    def picture(self, state: Any) -> Picture | None:
        """The board, drawn by Pgx."""
        return str(state[0].to_svg())

    def _begin(self, key: Any) -> tuple[Any, Any]:
        """A new game and the player in each seat: those that follow the one who moves first."""
        game = self._env.init(key)
        order = (game.current_player + jnp.arange(self._players, dtype=jnp.int32)) % self._players
        # Sparrow mahjong's three players do not follow each other by number.
        return game, getattr(game, "_shuffled_players", order)

    def _told(
        self, game: Any, order: Any, rewards: Any, terminated: Any, reset: Any
    ) -> CompiledStep:
        solo = self._players == 1
        return CompiledStep(
            {"": game.observation.astype(self._dtype)},
            rewards.reshape(()) if solo else rewards[order],
            terminated,
            jnp.zeros((), bool),  # Pgx ends long games by its own rules, never from outside
            reset,
            game.legal_action_mask if self._masked else None,
            None if solo else jnp.argmax(order == game.current_player).astype(jnp.int32),
        )


def _make(id: str, kwargs: Options) -> Any:
    try:
        import pgx
    except ImportError as error:
        raise MissingExtra(f"environment {id}", "games") from error
    if id not in (known := pgx_ids()):
        raise UnknownName("environment", id, known, "run `rookery envs pgx`")
    env = pgx.make(id.removeprefix(PREFIX))
    if not kwargs:
        return env
    check_options(id, type(env), kwargs, also=())
    # A name may stand for arguments (go_9x9): those that were not given stay as they are.
    holders = (env, getattr(env, "_game", None))
    kept = {
        name: getattr(holder, name)
        for name in inspect.signature(type(env)).parameters
        for holder in holders
        if hasattr(holder, name)
    }
    try:
        return type(env)(**{**kept, **kwargs})
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(f"environment {id} cannot be made: {reason}") from error


def _leaf(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Leaf:
    """The lone leaf. Pgx declares no bounds: its planes are 0 to 1, its vectors may be anything."""
    planes = len(shape) == 3 or dtype.kind == "b"
    low, high = (0, 1) if planes else (-np.inf, np.inf)
    travelling = np.dtype(travel_dtype(dtype))
    if travelling.kind in "iu" and not planes:
        low, high = np.iinfo(travelling).min, np.iinfo(travelling).max
    space = spaces.Box(low, high, shape, travelling.type)
    leaf = read_space(space, "the observation space")[0].leaf
    if len(shape) == 2:  # a table of features, not a picture
        return msgspec.structs.replace(leaf, kind="box", shape=shape)
    return leaf
