"""Gymnasium environments as the slots of one batched environment.

An id with a native vector environment (CartPole-v1) is stepped by it in one call; any other is
stepped as several copies in a plain loop. The parts, from top to bottom: making copies; spaces as
leaves and heads; masks; the two ways to step; saving and restoring; the adapter that joins them.

Images: a Box with finite bounds and two or three dimensions whose height and width are both at
least 7 is an image, kept as height x width x channels. Two dimensions get one channel. Of three,
the first holds the channels only when it is strictly the smallest (3x84x84), else the last.

Numbers: 64-bit observations travel as float32 and booleans as uint8, since JAX computes in 32 bits;
Discrete and MultiDiscrete values are counted from 0 whatever the space's start.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    load_env_creator,
)
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv

from rookery.envs import SOLO_SEAT, Arrays, SeatView
from rookery.errors import (
    ConfigError,
    EnvironmentFailed,
    InputError,
    MissingExtra,
    RookeryError,
    nearest_names,
)
from rookery.spaces import (
    ActionSpace,
    Categorical,
    Continuous,
    EnvironmentSpec,
    Leaf,
    LeafKind,
    MultiCategorical,
    SeatSpec,
)

Env = gymnasium.Env[Any, Any]
Factory = Callable[..., Env]
Options = Mapping[str, Any]

# --- making copies -----------------------------------------------------------------------------

_EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "ale_py": "atari"}  # package -> extra
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")


def make_copy(id: str, kwargs: Options, factory: Factory | None = None) -> Env:
    """One copy of the environment, bad options and missing packages told in one line."""
    if factory is not None:
        made = call_factory(id, factory, kwargs)
        if not isinstance(made, gymnasium.Env):
            raise InputError(
                f"environment {id} is made as a {type(made).__name__}; it must be a gymnasium.Env"
            )
        return made
    with _telling_what_is_wrong(id, kwargs, factory):
        _check_options(id, _creator(gymnasium.spec(id).entry_point), kwargs)
        return gymnasium.make(id, disable_env_checker=True, **kwargs)


def call_factory(id: str, factory: Callable[..., Any], kwargs: Options) -> Any:
    """What a user's factory makes; `max_episode_steps` works as it does for a Gymnasium id."""
    with _telling_what_is_wrong(id, kwargs, factory):
        options = dict(kwargs)
        limit = None
        if "max_episode_steps" not in _parameters(factory):
            limit = options.pop("max_episode_steps", None)
        _check_options(id, factory, options)
        made = factory(**options)
        if limit is None or not isinstance(made, gymnasium.Env):
            return made
        return gymnasium.wrappers.TimeLimit(made, int(limit))


@contextlib.contextmanager
def _telling_what_is_wrong(
    id: str, kwargs: Options, factory: Callable[..., Any] | None
) -> Iterator[None]:
    with warnings.catch_warnings():
        # Box2D's SWIG module warns while it is imported; as an error that would crash the process.
        # Gymnasium's own news of newer versions are for `rookery envs`.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            yield
        except RookeryError:
            raise
        except Exception as error:
            raise _not_made(id, kwargs, factory, error) from error


def _make_vector(id: str, slots: int, kwargs: Options) -> VectorEnv[Any, Any, Any] | None:
    """The id's native vector environment, if it has one that can play by our rules."""
    spec = gymnasium.spec(id)
    if spec.vector_entry_point is None or spec.additional_wrappers:
        return None
    creator = _creator(spec.vector_entry_point)
    if _unknown_options(creator, kwargs):
        return None
    env = gymnasium.make_vec(id, num_envs=slots, vectorization_mode="vector_entry_point", **kwargs)
    if env.metadata.get("autoreset_mode") is not AutoresetMode.NEXT_STEP:
        env.close()
        return None
    return env


def _creator(entry_point: object) -> Callable[..., Any]:
    if callable(entry_point):
        return entry_point
    assert isinstance(entry_point, str), f"no entry point: {entry_point!r}"
    return cast("Callable[..., Any]", load_env_creator(entry_point))


def _parameters(creator: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(creator).parameters)


def _unknown_options(creator: Callable[..., Any], kwargs: Options) -> list[str]:
    parameters = _parameters(creator)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    return [name for name in kwargs if name not in parameters]


def _check_options(id: str, creator: Callable[..., Any], kwargs: Options) -> None:
    """Every option exists, and every option that has no default is given."""
    for name in _unknown_options(creator, kwargs):
        if name != "max_episode_steps":
            raise unknown_option(id, name, [*_parameters(creator), "max_episode_steps"])
    defaults = {} if id not in gymnasium.registry else gymnasium.spec(id).kwargs
    for name, parameter in _parameters(creator).items():
        needed = parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        )
        if needed and name not in kwargs and name not in defaults:
            raise ConfigError(f"environment {id} needs its option {name!r}: --env.{name}=...")


def unknown_option(id: str, name: str, known: list[str]) -> ConfigError:
    """The error for an environment option that does not exist, with the nearest that do."""
    near = nearest_names(name, known)
    advice = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(known)}"
    return ConfigError(f"environment {id} has no option {name!r}; {advice}")


def _not_made(
    id: str, kwargs: Options, factory: Callable[..., Any] | None, error: Exception
) -> RookeryError:
    """What to tell a person whose environment could not be made."""
    if isinstance(error, ImportError | DependencyNotInstalled):
        extra = _missing_extra(id, error)
        if extra:
            return MissingExtra(f"environment {id}", extra)
        newer = _newer_version(id)
        advice = f"; try {newer}" if newer else ""
        return InputError(f"environment {id} cannot be made: {_first_line(error)}{advice}")
    if isinstance(error, TypeError) and (unexpected := _UNEXPECTED.search(str(error))):
        return unknown_option(id, unexpected[1], ["max_episode_steps"])
    if factory is None and kwargs:  # the library's own code refused a person's options
        options = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        reason = f"{type(error).__name__}: {_first_line(error)}"
        return ConfigError(f"environment {id} cannot be made with {options} ({reason})")
    return environment_failed(error, id, "being made")


def _newer_version(id: str) -> str | None:
    if id not in gymnasium.registry:
        return None
    spec = gymnasium.spec(id)
    highest = find_highest_version(spec.namespace, spec.name)
    newest = get_env_id(spec.namespace, spec.name, highest)
    return newest if newest != id else None


def _missing_extra(id: str, error: Exception) -> str | None:
    """The extra that provides what could not be imported; None when no extra would help."""
    cause = error.__cause__ if isinstance(error, DependencyNotInstalled) else error
    if not isinstance(cause, ModuleNotFoundError):
        return None
    entry_point = str(gymnasium.spec(id).entry_point) if id in gymnasium.registry else ""
    for hint in ((cause.name or "").partition(".")[0].lower(), *entry_point.split(".")):
        if hint in _EXTRAS:
            return _EXTRAS[hint]
    return None


def environment_failed(
    error: Exception, id: str, doing: str, slot: int | None = None, step: int | None = None
) -> EnvironmentFailed:
    """The environment's own error with the seat, the slot and the step, to raise `from` it."""
    where = "" if step is None else f" after {step} steps"
    where += "" if slot is None else f" of slot {slot}"
    return EnvironmentFailed(
        f"environment {id} (seat {SOLO_SEAT}) raised {type(error).__name__} in {doing}{where}: "
        f"{_first_line(error)}",
        seat=SOLO_SEAT,
        slot=slot,
        step=step,
        user_traceback=user_traceback(error),
    )


def user_traceback(error: BaseException) -> str:
    """The error's traceback without the frames of this adapter and of Gymnasium's wrappers."""
    above = (__file__, *(str(folder) for folder in _wrapper_folders()))
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(above):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _wrapper_folders() -> Iterator[str]:
    home = inspect.getfile(gymnasium).removesuffix("__init__.py")
    return (home + part for part in ("core.py", "wrappers", "vector", "envs/registration.py"))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")


# --- observation spaces as leaves --------------------------------------------------------------

_OBSERVATIONS = "Box of 0 to 3 dimensions, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
_ACTIONS = "Discrete, MultiDiscrete and Box"
_SMALLEST_IMAGE_SIDE = 7  # MiniGrid's 7x7x3 is the smallest that convolutions are used on

Layout = Literal["as_is", "add_axis", "flatten", "channels_first"]


@dataclass(frozen=True, slots=True)
class LeafReader:
    """Where a leaf is inside an observation and how its values become the leaf's."""

    leaf: Leaf
    keys: tuple[Any, ...]
    raw_shape: tuple[int, ...]
    start: np.ndarray | None = None
    layout: Layout = "as_is"

    def dig(self, observation: Any) -> Any:
        """This leaf's part of an observation, of one slot or of a batch."""
        for key in self.keys:
            observation = observation[key]
        return observation

    def convert(self, raw: Any, xp: Any = np) -> Any:
        """Values in the leaf's layout; `xp` is numpy or jax.numpy, `raw` has the leaf's dtype."""
        if self.start is not None:
            raw = raw - self.start
        if self.layout == "channels_first":
            return xp.ascontiguousarray(xp.moveaxis(raw, -3, -1))
        if self.layout == "flatten":
            return raw.reshape((*raw.shape[: raw.ndim - len(self.raw_shape)], *self.leaf.shape))
        return raw[..., None] if self.layout == "add_axis" else raw

    def read_rows(self, observations: list[Any]) -> np.ndarray:
        """This leaf of one observation per slot, as a fresh array."""
        rows = np.empty((len(observations), *self.raw_shape), self.leaf.dtype)
        if not self.keys:
            for slot, observation in enumerate(observations):
                rows[slot] = observation
        else:
            for slot, observation in enumerate(observations):
                rows[slot] = self.dig(observation)
        return cast(np.ndarray, self.convert(rows))

    def read_batch(self, observation: Any) -> np.ndarray:
        """This leaf of a vector environment's observation, as a fresh array in C order."""
        rows = np.array(self.dig(observation), dtype=self.leaf.dtype, order="C")
        return cast(np.ndarray, self.convert(rows))


def read_space(space: Any, where: str, keys: tuple[Any, ...] = ()) -> tuple[LeafReader, ...]:
    """The leaves of an observation space; `where` begins the message when there is none for it."""
    if isinstance(space, spaces.Dict):
        parts: list[tuple[Any, Any]] = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
    else:
        return (_read_leaf(space, where, keys),)
    readers = tuple(r for key, part in parts for r in read_space(part, where, (*keys, key)))
    paths = [reader.leaf.path for reader in readers]
    if clash := next((path for path in paths if paths.count(path) > 1), None):
        raise InputError(f"{where} has two parts named {clash!r}; rename one of its keys")
    return readers


def _read_leaf(space: Any, where: str, keys: tuple[Any, ...]) -> LeafReader:
    path = ".".join(str(key) for key in keys)
    if isinstance(space, spaces.Box) and len(space.shape) <= 3:
        return _read_box(space, path, keys)
    if isinstance(space, spaces.Discrete):
        leaf = Leaf(path, "discrete", (), "int32", sizes=(int(space.n),))
        return LeafReader(leaf, keys, (), _start(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in space.nvec.reshape(-1))
        leaf = Leaf(path, "multi_discrete", (len(sizes),), "int32", sizes=sizes)
        return LeafReader(leaf, keys, space.nvec.shape, _start(space.start), "flatten")
    if isinstance(space, spaces.MultiBinary):
        shape = tuple(int(n) for n in space.shape)
        return LeafReader(Leaf(path, "multi_binary", shape, "uint8", low=0, high=1), keys, shape)
    shape_note = f" with {len(space.shape)} dimensions" if isinstance(space, spaces.Box) else ""
    place = f" at {path!r}" if path else ""
    raise InputError(
        f"{where} has a {type(space).__name__}{shape_note}{place}, which is not supported; "
        f"supported are {_OBSERVATIONS}"
    )


def _read_box(space: spaces.Box, path: str, keys: tuple[Any, ...]) -> LeafReader:
    shape = tuple(int(n) for n in space.shape)
    low, high = _bound(np.min, space.low, -np.inf), _bound(np.max, space.high, np.inf)
    layout, kind = _box_layout(shape, bool(np.isfinite(low) and np.isfinite(high)))
    if layout == "channels_first":
        leaf_shape = (*shape[1:], shape[0])
    else:
        leaf_shape = (*shape, 1) if layout == "add_axis" else shape
    leaf = Leaf(path, kind, leaf_shape, travel_dtype(space.dtype), low=low, high=high)
    return LeafReader(leaf, keys, shape, None, layout)


def _bound(pick: Any, bounds: np.ndarray, infinite: float) -> float:
    """The outermost bound; the largest float32 is how many environments say infinite."""
    bound = float(pick(bounds)) if bounds.size else infinite
    return infinite if abs(bound) >= float(np.finfo(np.float32).max) else bound


def _box_layout(shape: tuple[int, ...], bounded: bool) -> tuple[Layout, LeafKind]:
    """How a Box is laid out as a leaf, and whether it is an image (the rule is at the top)."""
    if not shape:
        return "add_axis", "box"
    if bounded and len(shape) == 2 and min(shape) >= _SMALLEST_IMAGE_SIDE:
        return "add_axis", "image"
    if bounded and len(shape) == 3:
        channels_first = shape[0] < shape[1] and shape[0] < shape[2]
        if min(shape[1:] if channels_first else shape[:2]) >= _SMALLEST_IMAGE_SIDE:
            return ("channels_first" if channels_first else "as_is"), "image"
    return "as_is", "box"


def travel_dtype(dtype: Any) -> str:
    """The dtype in which a Box's values travel."""
    given = np.dtype(dtype)
    if given.kind == "b":
        return "uint8"
    return "float32" if given.itemsize >= 8 else given.name


def _start(start: Any) -> np.ndarray | None:
    return np.asarray(start, np.int32) if np.any(start) else None


# --- action spaces as heads --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActionWriter:
    """The head of an action space, and the policy's numbers turned into the environment's."""

    head: ActionSpace
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def mask_width(self) -> int | None:
        """How many booleans a mask has; None where actions cannot be masked."""
        if isinstance(self.head, Categorical):
            return self.head.n
        return sum(self.head.sizes) if isinstance(self.head, MultiCategorical) else None

    def encoder(self, slots: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """`encode(actions, ignored)` for that many slots; rows of `ignored` may hold anything."""
        head, batch = self.head, (slots, *self.shape)
        if isinstance(head, Continuous):
            return self._continuous_encoder(head, batch)
        if isinstance(head, Categorical):
            sizes, start = np.asarray(head.n), np.asarray(head.start)
        else:
            sizes = np.asarray(head.sizes).reshape(self.shape)
            start = np.asarray(head.starts).reshape(self.shape)
        dtype, smallest = self.dtype, int(sizes.min())
        # Seen as unsigned, a negative action is a huge one: a single pass finds both kinds.
        unsigned = np.dtype(f"u{dtype.itemsize}")
        offset = start.astype(dtype) if start.any() else None

        def encode(actions: np.ndarray, ignored: np.ndarray) -> np.ndarray:
            chosen = np.asarray(actions, dtype).reshape(batch)
            if np.maximum.reduce(chosen.view(unsigned), axis=None) >= smallest:  # look closely
                outside = ((chosen < 0) | (chosen >= sizes)).reshape(slots, -1).any(axis=1)
                if (outside & ~ignored).any():
                    slot = int(np.flatnonzero(outside & ~ignored)[0])
                    raise ValueError(f"action {chosen[slot]} of slot {slot} is not below {sizes}")
            return chosen.copy() if offset is None else chosen + offset

        return encode

    def _continuous_encoder(
        self, head: Continuous, batch: tuple[int, ...]
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        low = np.asarray(head.low).reshape(self.shape)
        high = np.asarray(head.high).reshape(self.shape)
        whole = self.dtype.kind in "iu"  # a Box of integers: the nearest one is played

        def encode(actions: np.ndarray, ignored: np.ndarray) -> np.ndarray:
            chosen = np.asarray(actions, np.float64).reshape(batch)
            chosen = np.minimum(np.maximum(chosen, low), high)
            return cast(np.ndarray, np.rint(chosen) if whole else chosen).astype(self.dtype)

        return encode


def write_space(space: Any, where: str) -> ActionWriter:
    """The head of an action space; `where` begins the message when there is none for it."""
    if isinstance(space, spaces.Discrete):
        return ActionWriter(Categorical(int(space.n), int(space.start)), (), np.dtype(space.dtype))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in space.nvec.reshape(-1))
        starts = tuple(int(n) for n in space.start.reshape(-1))
        dtype = np.dtype(space.dtype)
        return ActionWriter(MultiCategorical(sizes, starts), space.nvec.shape, dtype)
    if isinstance(space, spaces.Box):
        low = tuple(float(bound) for bound in space.low.reshape(-1))
        high = tuple(float(bound) for bound in space.high.reshape(-1))
        shape = tuple(int(n) for n in space.shape)
        dtype = np.dtype(space.dtype)
        return ActionWriter(Continuous(shape, low, high, dtype.name), shape, dtype)
    raise InputError(
        f"{where} is a {type(space).__name__}, which is not supported; supported are {_ACTIONS}"
    )


# --- masks -------------------------------------------------------------------------------------

_MASK = "action_mask"


def _flat_mask(value: Any, width: int, lead: tuple[int, ...] = ()) -> np.ndarray:
    """A mask as booleans of shape (*lead, width), from one array or from one per component."""
    if isinstance(value, tuple | list) and len(value) and np.ndim(value[0]) > len(lead):
        value = np.concatenate([np.asarray(part) for part in value], axis=-1)
    mask = np.asarray(value).astype(bool)
    if mask.shape != (*lead, width):
        raise ValueError(f"its action mask has the shape {mask.shape}, not {(*lead, width)}")
    return mask


def _excuse_ended(mask: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """A finished game may offer no move; the next action is ignored, so let it be any."""
    if np.count_nonzero(ended):
        mask[ended & ~mask.any(axis=1)] = True
    return mask


# --- what one copy tells -----------------------------------------------------------------------

MaskSource = Literal["none", "info", "observation"]


@dataclass(frozen=True, slots=True)
class Interface:
    """Everything needed to talk with an environment, learned from one copy that is thrown away."""

    spec: EnvironmentSpec
    readers: tuple[LeafReader, ...]
    writer: ActionWriter
    mask_source: MaskSource

    @property
    def mask_width(self) -> int:
        """How many booleans a mask has."""
        return self.writer.mask_width or 0


def probe(id: str, kwargs: Options, factory: Factory | None = None) -> Interface:
    """Make one copy, read its spaces, reset it once to see whether it masks actions; close it."""
    vector = _make_vector_or_none(id, 1, kwargs, factory)
    env: Any = vector if vector is not None else make_copy(id, kwargs, factory)
    try:
        return _probe(id, env, vector is not None)
    finally:
        env.close()


def _make_vector_or_none(
    id: str, slots: int, kwargs: Options, factory: Factory | None
) -> VectorEnv[Any, Any, Any] | None:
    if factory is not None:
        return None
    with _telling_what_is_wrong(id, kwargs, factory):
        return _make_vector(id, slots, kwargs)


def _probe(id: str, env: Any, native: bool) -> Interface:
    observation_space = env.single_observation_space if native else env.observation_space
    writer = write_space(
        env.single_action_space if native else env.action_space, f"{id}: the action space"
    )
    try:
        observation, info = env.reset(seed=0)
    except Exception as error:
        raise environment_failed(error, id, "reset", 0, 0) from error
    mask_source = _find_mask(observation_space, info, writer)
    if mask_source == "observation":
        kept = {key: part for key, part in observation_space.spaces.items() if key != _MASK}
        observation_space = spaces.Dict(kept)
    readers = read_space(observation_space, f"{id}: the observation space")
    if not readers:
        raise InputError(f"{id}: the observation space has nothing to observe")
    lead = (1,) if native else ()
    _check_observation(id, readers, observation, lead)
    if mask_source != "none":
        given = (info if mask_source == "info" else observation)[_MASK]
        try:
            _flat_mask(given, cast(int, writer.mask_width), lead)
        except ValueError as error:
            raise InputError(f"{id}: {error}") from error
    seat = SeatSpec(
        tuple(reader.leaf for reader in readers), writer.head, masked=mask_source != "none"
    )
    spec = EnvironmentSpec(
        id,
        {SOLO_SEAT: seat},
        can_save=_can_save(env),
        max_episode_steps=_time_limit(env),
    )
    return Interface(spec, readers, writer, mask_source)


def _find_mask(space: Any, info: dict[str, Any], writer: ActionWriter) -> MaskSource:
    if writer.mask_width is None:
        return "none"
    if isinstance(space, spaces.Dict) and _MASK in space.spaces:
        return "observation"
    return "info" if _MASK in info else "none"


def _check_observation(
    id: str, readers: tuple[LeafReader, ...], observation: Any, lead: tuple[int, ...]
) -> None:
    """An observation that does not fit its space is told at once, not as a broken batch later."""
    for reader in readers:
        place = f" at {reader.leaf.path!r}" if reader.leaf.path else ""
        try:
            shape = np.shape(reader.dig(observation))
        except (LookupError, TypeError) as error:
            raise InputError(f"{id}: reset gave an observation without its part{place}") from error
        if shape != (*lead, *reader.raw_shape):
            raise InputError(
                f"{id}: reset gave an observation of shape {shape}{place}, "
                f"but its space says {(*lead, *reader.raw_shape)}"
            )


def _time_limit(env: Any) -> int | None:
    for layer in _layers(env):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            return int(layer._max_episode_steps)
    spec: EnvSpec | None = getattr(env, "spec", None)
    limit = getattr(env, "max_episode_steps", None)
    if limit is None and spec is not None:
        limit = spec.max_episode_steps
    return limit if isinstance(limit, int) else None


# --- two ways to step --------------------------------------------------------------------------


class _Copies(Protocol):
    """The slots, however they are stepped."""

    def reset(self, seed: int) -> SeatView: ...
    def step(self, actions: np.ndarray) -> SeatView: ...
    def save(self) -> Arrays: ...
    def restore(self, state: Arrays, view: SeatView) -> None: ...
    def close(self) -> None: ...


class _AnyAction:
    """Stands in for a vector environment's action space, which it asks at every step.

    At 128 slots `contains` takes a tenth of CartPole's whole step; our encoder has already checked
    the actions, so this says yes at once. Everything else is the real space's.
    """

    def __init__(self, space: Any) -> None:
        self._space = space

    def contains(self, action: Any) -> bool:
        return True

    def __contains__(self, action: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)


class _VectorCopies:
    """All slots in one native vector environment."""

    def __init__(self, env: VectorEnv[Any, Any, Any], interface: Interface, slots: int) -> None:
        self._env = env
        self._env.action_space = cast(Any, _AnyAction(env.action_space))
        self._interface = interface
        self._readers = interface.readers
        self._encode = interface.writer.encoder(slots)
        self._slots = slots
        self._ended = np.zeros(slots, bool)
        self._steps = 0

    def reset(self, seed: int) -> SeatView:
        try:
            observation, info = self._env.reset(seed=seed)
        except Exception as error:
            raise self._failed(error, "reset") from error
        self._ended = no = np.zeros(self._slots, bool)
        reward = np.zeros(self._slots, np.float32)
        return self._view(observation, info, reward, no.copy(), no.copy(), no)

    def step(self, actions: np.ndarray) -> SeatView:
        chosen = self._encode(actions, self._ended)
        try:
            observation, reward, terminated, truncated, info = self._env.step(chosen)
        except Exception as error:
            raise self._failed(error, "step") from error
        self._steps += 1
        reset, reward = self._ended, np.array(reward, np.float32)
        if np.count_nonzero(reset):  # many times faster than any()
            reward[reset] = 0
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        self._ended = terminated | truncated
        return self._view(observation, info, reward, terminated, truncated, reset)

    def _view(
        self,
        observation: Any,
        info: dict[str, Any],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        reset: np.ndarray,
    ) -> SeatView:
        leaves = {reader.leaf.path: reader.read_batch(observation) for reader in self._readers}
        mask = None
        if self._interface.mask_source != "none":
            mask = self._mask(observation, info)
        return SeatView(leaves, mask, reward, terminated, truncated, reset.copy())

    def _mask(self, observation: Any, info: dict[str, Any]) -> np.ndarray:
        shape = (self._slots, self._interface.mask_width)
        if self._interface.mask_source == "observation":
            mask = _flat_mask(observation[_MASK], shape[1], shape[:1])
        elif _MASK in info:
            mask = _flat_mask(info[_MASK], shape[1], shape[:1])
            mask[~np.asarray(info.get(f"_{_MASK}", np.True_)) & np.ones(shape[0], bool)] = True
        else:
            mask = np.ones(shape, bool)
        return _excuse_ended(mask, self._ended)

    def _failed(self, error: Exception, doing: str) -> EnvironmentFailed:
        return environment_failed(error, self._interface.spec.id, doing, None, self._steps)

    def save(self) -> Arrays:
        return {"copies": to_text([_save_copy(self._env)[0]]), "steps": np.asarray([self._steps])}

    def restore(self, state: Arrays, view: SeatView) -> None:
        _restore_copy(self._env, from_text(state["copies"])[0], {})
        self._steps = int(state["steps"][0])
        self._ended = view.terminated | view.truncated

    def close(self) -> None:
        self._env.close()


class _LoopedCopies:
    """One single environment per slot, stepped in turn."""

    def __init__(self, envs: list[Env], interface: Interface) -> None:
        self._envs = envs
        self._interface = interface
        self._encode = interface.writer.encoder(len(envs))
        self._ended = np.zeros(len(envs), bool)
        self._steps = [0] * len(envs)

    def reset(self, seed: int) -> SeatView:
        # Not seed + slot: neighbouring seeds of two actors would share most of their episodes.
        seeds = np.random.SeedSequence(seed).generate_state(len(self._envs)).tolist()
        observations, infos = [], []
        for slot, env in enumerate(self._envs):
            try:
                observation, info = env.reset(seed=seeds[slot])
            except Exception as error:
                raise self._failed(error, "reset", slot) from error
            observations.append(observation)
            infos.append(info)
        self._ended = no = np.zeros(len(self._envs), bool)
        reward = np.zeros(len(self._envs), np.float32)
        return self._view(observations, infos, reward, no.copy(), no.copy(), no.copy())

    def step(self, actions: np.ndarray) -> SeatView:
        reset = self._ended
        chosen = self._encode(actions, reset)
        count = len(self._envs)
        reward = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
        observations, infos = [], []
        slot, begin = 0, reset.tolist()
        try:
            for slot, env in enumerate(self._envs):
                if begin[slot]:
                    observation, info = env.reset()
                else:
                    observation, reward[slot], terminated[slot], truncated[slot], info = env.step(
                        chosen[slot]
                    )
                    self._steps[slot] += 1
                observations.append(observation)
                infos.append(info)
        except Exception as error:
            raise self._failed(error, "reset" if begin[slot] else "step", slot) from error
        self._ended = terminated | truncated
        return self._view(observations, infos, reward, terminated, truncated, reset)

    def _view(
        self,
        observations: list[Any],
        infos: list[dict[str, Any]],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        reset: np.ndarray,
    ) -> SeatView:
        try:
            leaves = {r.leaf.path: r.read_rows(observations) for r in self._interface.readers}
            mask = self._mask(observations, infos)
        except (LookupError, TypeError, ValueError) as error:
            raise self._failed(error, "an observation that does not fit its space,") from error
        return SeatView(leaves, mask, reward, terminated, truncated, reset)

    def _mask(self, observations: list[Any], infos: list[dict[str, Any]]) -> np.ndarray | None:
        if self._interface.mask_source == "none":
            return None
        sources = infos if self._interface.mask_source == "info" else observations
        width = self._interface.mask_width
        mask = np.ones((len(self._envs), width), bool)
        for slot, source in enumerate(sources):
            if _MASK in source:
                mask[slot] = _flat_mask(source[_MASK], width)
        return _excuse_ended(mask, self._ended)

    def _failed(self, error: Exception, doing: str, slot: int | None = None) -> EnvironmentFailed:
        step = None if slot is None else self._steps[slot]
        return environment_failed(error, self._interface.spec.id, doing, slot, step)

    def save(self) -> Arrays:
        state: Arrays = {"steps": np.asarray(self._steps)}
        plain = []
        for slot, env in enumerate(self._envs):
            attributes, arrays = _save_copy(env)
            plain.append(attributes)
            state.update({f"slot.{slot}.{name}": np.array(a) for name, a in arrays.items()})
        return {**state, "copies": to_text(plain)}

    def restore(self, state: Arrays, view: SeatView) -> None:
        for slot, (env, plain) in enumerate(
            zip(self._envs, from_text(state["copies"]), strict=True)
        ):
            prefix = f"slot.{slot}."
            arrays = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            _restore_copy(env, plain, arrays)
        self._steps = [int(steps) for steps in state["steps"]]
        self._ended = view.terminated | view.truncated

    def close(self) -> None:
        for env in self._envs:
            env.close()


# --- saving and restoring ----------------------------------------------------------------------

# The attributes that change while an environment is played, for those we know exactly. A subclass
# is not its parent here: it may have more state.
_CLASSIC, _TOY = "gymnasium.envs.classic_control.", "gymnasium.envs.toy_text."
_WRAPPER = "gymnasium.wrappers.common:"
_STATE_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    _CLASSIC + "cartpole:CartPoleVectorEnv": ("state", "steps", "prev_done", "low", "high"),
    _CLASSIC + "cartpole:CartPoleEnv": ("state", "steps_beyond_terminated"),
    _CLASSIC + "acrobot:AcrobotEnv": ("state",),
    _CLASSIC + "pendulum:PendulumEnv": ("state", "last_u"),
    _CLASSIC + "mountain_car:MountainCarEnv": ("state",),
    _CLASSIC + "continuous_mountain_car:Continuous_MountainCarEnv": ("state",),
    _TOY + "frozen_lake:FrozenLakeEnv": ("s", "lastaction"),
    _TOY + "cliffwalking:CliffWalkingEnv": ("s", "lastaction"),
    _TOY + "taxi:TaxiEnv": ("s", "lastaction", "fickle_step", "taxi_orientation"),
    _TOY + "blackjack:BlackjackEnv": (
        "player",
        "dealer",
        "dealer_top_card_suit",
        "dealer_top_card_value_str",
    ),
    _WRAPPER + "TimeLimit": ("_elapsed_steps",),
    _WRAPPER + "OrderEnforcing": ("_has_reset",),
    _WRAPPER + "PassiveEnvChecker": (),
}
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def _layers(env: Any) -> Iterator[Any]:
    """The wrappers from the outside in, then the environment itself."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _name(layer: Any) -> str:
    return f"{type(layer).__module__}:{type(layer).__qualname__}"


def _saves_itself(layer: Any) -> bool:
    return callable(getattr(layer, "save_state", None)) and callable(
        getattr(layer, "restore_state", None)
    )


def _can_save(env: Any) -> bool:
    """Each layer is known, down to one that saves itself or to the environment."""
    for layer in _layers(env):
        if _saves_itself(layer):
            return True
        if _name(layer) not in _STATE_ATTRIBUTES:
            return False
    return True


def _save_copy(env: Any) -> tuple[dict[str, Any], Arrays]:
    """A copy's attributes as plain values, and the arrays of one that saves itself."""
    layers: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for layer in _layers(env):
        if _saves_itself(layer):
            arrays = layer.save_state()
            break
        held = vars(layer)
        layers.append({n: held[n] for n in _STATE_ATTRIBUTES[_name(layer)] if n in held})
    generator = vars(env.unwrapped).get("_np_random")
    random = None if generator is None else generator.bit_generator.state
    return {"layers": layers, "random": random}, arrays


def _restore_copy(env: Any, plain: dict[str, Any], arrays: Arrays) -> None:
    for layer, attributes in zip(_layers(env), plain["layers"], strict=False):
        vars(layer).update(attributes)
    for layer in _layers(env):
        if _saves_itself(layer):
            layer.restore_state(arrays)
            break
    random = plain["random"]
    if random is not None:
        if random["bit_generator"] not in _BIT_GENERATORS:
            raise InputError(f"unknown random generator {random['bit_generator']!r} in a state")
        bits = getattr(np.random, random["bit_generator"])()
        bits.state = random
        env.unwrapped.np_random = np.random.Generator(bits)


def to_text(value: Any) -> np.ndarray:
    """Plain values and small arrays, exact to the bit, as the bytes of JSON text."""
    return np.frombuffer(json.dumps(_to_json(value)).encode(), np.uint8).copy()


def from_text(text: np.ndarray) -> Any:
    """The values that `to_text` wrote."""
    return _from_json(json.loads(text.tobytes()))


def _to_json(value: Any) -> Any:
    # numpy scalars before Python's: np.float64 is a float, yet must come back as np.float64.
    if isinstance(value, np.generic | np.ndarray):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError("an array of Python objects cannot be saved")
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [array.dtype.str, list(array.shape), array.tobytes().hex()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_to_json(part) for part in value]}
    if isinstance(value, dict):
        return {"dict": {str(key): _to_json(part) for key, part in value.items()}}
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {key: _from_json(part) for key, part in content.items()}
    if kind in ("list", "tuple"):
        parts = [_from_json(part) for part in content]
        return parts if kind == "list" else tuple(parts)
    dtype, shape, data = content
    array = np.frombuffer(bytes.fromhex(data), np.dtype(dtype)).reshape(shape).copy()
    return array if kind == "array" else array[()]


def save_view(view: SeatView) -> Arrays:
    """A view as flat arrays; `load_view` is its inverse."""
    state = {f"view.observation.{path}": array for path, array in view.observation.items()}
    if view.mask is not None:
        state["view.mask"] = view.mask
    for name in ("reward", "terminated", "truncated", "reset"):
        state[f"view.{name}"] = getattr(view, name)
    return {name: array.copy() for name, array in state.items()}


def load_view(state: Arrays, seat: SeatSpec) -> SeatView:
    """The view that `save_view` wrote, in arrays of its own."""
    return SeatView(
        {leaf.path: state[f"view.observation.{leaf.path}"].copy() for leaf in seat.observation},
        state["view.mask"].copy() if seat.masked else None,
        *(state[f"view.{n}"].copy() for n in ("reward", "terminated", "truncated", "reset")),
    )


def check_header(state: Arrays, header: dict[str, Any]) -> None:
    """Refuse a state that was saved by another environment or another number of slots."""
    saved = json.loads(state["header"].tobytes()) if "header" in state else {}
    for name, value in header.items():
        if saved.get(name) != value:
            raise InputError(
                f"this state is not of {header['id']} with {header['slots']} slots: "
                f"its {name} is {saved.get(name)!r}, not {value!r}"
            )


# --- the adapter -------------------------------------------------------------------------------


class GymnasiumEnvironment:
    """A Gymnasium id, or a factory of `gymnasium.Env`, as a batched environment with one seat."""

    def __init__(
        self,
        id: str,
        slots: int,
        kwargs: Options = types.MappingProxyType({}),
        factory: Factory | None = None,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"environment {id} needs at least 1 slot, not {slots}")
        interface = probe(id, kwargs, factory)
        self.spec = interface.spec
        self.slots = slots
        self._view: SeatView | None = None
        self._copies = self._make_copies(id, kwargs, factory, interface)

    def _make_copies(
        self, id: str, kwargs: Options, factory: Factory | None, interface: Interface
    ) -> _Copies:
        vector = _make_vector_or_none(id, self.slots, kwargs, factory)
        self._native = vector is not None
        if vector is not None:
            return _VectorCopies(vector, interface, self.slots)
        envs: list[Env] = []
        try:
            for _ in range(self.slots):
                envs.append(make_copy(id, kwargs, factory))
        except RookeryError:
            for env in envs:
                env.close()
            raise
        return _LoopedCopies(envs, interface)

    @property
    def native(self) -> bool:
        """Whether the slots are stepped by the library's own vector environment."""
        return self._native

    def reset(self, seed: int) -> dict[str, SeatView]:
        """Begin a new episode in every slot."""
        self._view = self._copies.reset(seed)
        return {SOLO_SEAT: self._view}

    def step(self, actions: dict[str, np.ndarray]) -> dict[str, SeatView]:
        """Play one action per slot; a slot whose episode has ended begins a new one instead."""
        self._view = self._copies.step(actions[SOLO_SEAT])
        return {SOLO_SEAT: self._view}

    def save(self) -> Arrays:
        """The exact state of every slot, and the views as they stand."""
        if not self.spec.can_save:
            raise InputError(f"environment {self.spec.id} cannot save its state")
        if self._view is None:
            raise RuntimeError("save before the first reset")
        return {
            "header": np.frombuffer(json.dumps(self._header()).encode(), np.uint8).copy(),
            **self._copies.save(),
            **save_view(self._view),
        }

    def restore(self, state: Arrays) -> dict[str, SeatView]:
        """Continue from `save`, in this copy or in a new one."""
        check_header(state, self._header())
        self._view = load_view(state, self.spec.seats[SOLO_SEAT])
        self._copies.restore(state, self._view)
        return {SOLO_SEAT: self._view}

    def _header(self) -> dict[str, Any]:
        return {"id": self.spec.id, "slots": self.slots, "native": self._native}

    def close(self) -> None:
        """Close every copy."""
        self._copies.close()
