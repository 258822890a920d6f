"""Reading a RunConfig: layers of plain mappings, merged over tuned defaults and validated once.

    config = build(load_yaml("run.yaml"), {"seed": 2}, assignment("algorithm.gamma=0.98"))

Whatever is wrong becomes one ConfigError line that names the key, with the nearest valid one.
"""

from __future__ import annotations

import copy
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from rookery.config.algorithm import DEFAULT, AlgorithmConfig, find, models
from rookery.config.bus import DEFAULT as DEFAULT_BUS
from rookery.config.bus import BusConfig
from rookery.config.bus import models as bus_models
from rookery.config.kinds import ALGORITHMS, BUSES, LAUNCHERS
from rookery.config.misfits import Place, misfits
from rookery.config.models import AUTO, MAIN, ActorsConfig, RunConfig
from rookery.config.tuned import tuned_defaults
from rookery.errors import ConfigError, UnknownName, nearest_names
from rookery.errors.words import bare, key_of

Layer = Mapping[str, Any]

LOCAL = next(iter(LAUNCHERS))
DEFAULT_STEPS = 1_000_000  # where a person names neither a target nor a limit


def build(*layers: Layer) -> RunConfig:
    """Merge the layers, later ones over earlier ones, over the environment's tuned defaults."""
    asked = merged_layers(*layers)
    environment = asked.get("environment")
    if not isinstance(environment, dict) or not environment.get("id"):
        raise ConfigError(
            "no environment given: name one, like CartPole-v1; `rookery envs` lists them"
        )
    algorithm = asked.get("algorithm", {})
    if not isinstance(algorithm, dict):
        raise ConfigError(f"algorithm: {algorithm!r} is not a mapping; set algorithm.kind")
    kind = algorithm.get("kind", DEFAULT)
    if not isinstance(kind, str) or (kind not in ALGORITHMS and ":" not in kind):
        raise UnknownName("algorithm", str(kind), ALGORITHMS, "Run `rookery algorithms`.")
    ours = find(kind) if kind in ALGORITHMS else None  # a user's own is not imported to be read
    asked["algorithm"] = {**algorithm, "kind": kind}
    bus = asked.setdefault("bus", {}) if asked.get("launcher") in BUSES else asked.get("bus")
    if isinstance(bus, dict):  # a launcher with a bus of its own uses that
        bus.setdefault("kind", asked["launcher"] if asked.get("launcher") in BUSES else DEFAULT_BUS)
    merged = tuned_defaults({} if ours is None else ours.tuned, str(environment["id"]))
    _merge(merged, asked)
    _fit(merged, asked, ours)
    _fill_policies(merged)
    return validate(merged)


def merged_layers(*layers: Layer) -> dict[str, Any]:
    """What was asked for in all of them, later ones over earlier ones, without any default."""
    asked: dict[str, Any] = {}
    for layer in layers:
        _merge(asked, layer)
        actors = layer.get("actors")
        named = actors if isinstance(actors, Mapping) else {}
        if isinstance(named.get("count"), int) and "auto" not in named:
            asked["actors"].pop("auto", None)  # a number takes back what was left to be found
    return asked


def placed(config: Layer, launcher: str) -> Layer:
    """A config as a server with a launcher of its own carries it, where it asks for no other."""
    if launcher == LOCAL or config.get("launcher", LOCAL) != LOCAL:
        return config
    bus = config.get("bus")
    kind = bus.get("kind", DEFAULT_BUS) if isinstance(bus, Mapping) else DEFAULT_BUS
    moved = {**config, "launcher": launcher}
    return {**moved, "bus": {"kind": launcher}} if kind == DEFAULT_BUS else moved


def self_play(policy: str = MAIN) -> dict[str, Any]:
    """The seats of `--self-play`: mostly the policy itself, now and then one of its past selves.

    A little random play keeps it able to punish moves that neither of them would make.
    """
    options = [
        {"player": policy, "weight": 0.7},
        {"league": policy, "weight": 0.23},
        {"player": "script:random", "weight": 0.07},
    ]
    return {"seats": {"*": {"draw": options}}}


def seats_from(texts: Iterable[str]) -> dict[str, str]:
    """`seat=player` arguments as the `seats` of a config."""
    seats = {}
    for text in texts:
        seat, equals, player = text.partition("=")
        if not equals or not seat or not player:
            raise ConfigError(f"{text!r} is not of the form seat=player, like player_0=main")
        seats[seat] = player
    return seats


def _fill_policies(merged: dict[str, Any]) -> None:
    """What a policy leaves out of its algorithm and network is the run's own."""
    policies = merged.get("policies")
    for policy in policies.values() if isinstance(policies, dict) else ():
        if not isinstance(policy, dict):
            continue  # for the validation to refuse
        for part in ("algorithm", "network"):
            whole = copy.deepcopy(merged.get(part, {}))
            own = policy.get(part, {})
            if part == "algorithm" and own.get("kind", whole["kind"]) != whole["kind"]:
                whole = {}
            _merge(whole, own)
            policy[part] = whole


def validate(values: Layer) -> RunConfig:
    """One ConfigError line, with the nearest key for an unknown one."""
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        raise explained(error) from None
    if config.changes:
        from rookery.config.live import check_changes

        check_changes(config)
    return config


def _fit(merged: dict[str, Any], asked: dict[str, Any], ours: Any) -> None:
    """Fill what follows from the number of actors, where nobody asked for something else."""
    learner = merged.setdefault("learner", {})
    actors = merged.get("actors", {})
    if not isinstance(learner, dict) or not isinstance(actors, dict):
        return
    if actors.get("count") == AUTO:
        actors |= {"count": 1, "auto": True}
    count = actors.get("count", 1)
    if not isinstance(count, int) or count < 1:
        return
    any_age = ours is not None and ours.corrects_staleness
    asked_learner = asked.get("learner", {})
    if not merged.get("stop"):
        merged["stop"] = {"steps": DEFAULT_STEPS}
    if "schedule" not in asked["algorithm"] and not (
        isinstance(merged["stop"], dict)
        and (merged["stop"].get("steps") or merged["stop"].get("minutes"))
    ):
        merged["algorithm"]["schedule"] = "constant"  # a tuned schedule needs an end to go to
    fragments, lag = for_actors(count, any_age)
    if "fragments_per_batch" not in asked_learner:
        learner["fragments_per_batch"] = fragments
    if "max_policy_lag_versions" not in asked_learner and lag is not None:
        learner["max_policy_lag_versions"] = lag
    follows = "max_policy_lag_versions" if any_age else "fragments_per_batch"
    learner.setdefault("follows_actors", follows not in asked_learner)
    if ours is not None:
        _fit_minibatches(merged, asked["algorithm"], ours)


def for_actors(count: int, any_age: bool) -> tuple[int, int | None]:
    """Fragments of a batch, and the bound on their lag where it follows from the number of actors.

    A batch has one fragment of each actor; where age is corrected it has one of any, and each
    actor may be ahead by one.
    """
    return (1, max(2, count)) if any_age else (count, None)


def _fit_minibatches(merged: dict[str, Any], asked: dict[str, Any], ours: Any) -> None:
    """What nobody asked of the algorithm becomes what fits the batch that was asked for."""
    actors, learner = merged.get("actors", {}), merged["learner"]
    defaults = ActorsConfig()
    lanes = actors.get("envs_per_actor", defaults.envs_per_actor)
    steps = actors.get("rollout_steps", defaults.rollout_steps)
    fragments, count = learner["fragments_per_batch"], learner.get("count", 1)
    if not all(isinstance(n, int) and n > 0 for n in (lanes, steps, fragments, count)):
        return
    try:
        config = ours.Config.model_validate(merged["algorithm"])
    except ValidationError:
        return  # for the validation of the whole to refuse
    learners = count if lanes * fragments % count == 0 else 1  # else there is more to say
    fitting = ours(config).fitted(steps, lanes * fragments, learners).model_dump()
    merged["algorithm"] |= {
        name: value
        for name, value in fitting.items()
        if name not in asked and value != getattr(config, name)
    }


def _merge(into: dict[str, Any], layer: Layer) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, Mapping):
            into[key] = {}
            _merge(into[key], value)
        else:
            into[key] = value


def load_yaml(path: str | Path) -> dict[str, Any]:
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read the config {str(path)!r}: {reason}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a mapping of config keys")
    return values


def assignment(text: str) -> dict[str, Any]:
    """`a.b=c` as a nested mapping; the value is read as YAML reads it."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip(". "):
        raise ConfigError(f"{text!r} is not of the form key=value, like algorithm.gamma=0.98")
    return nested(key.strip(), parse_value(value))


def nested(key: str, value: Any) -> dict[str, Any]:
    """The mapping in which a dotted key has this value, and nothing else stands."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return typing.cast("dict[str, Any]", value)


def parse_value(text: str) -> Any:
    """A value as YAML reads it; 1e-4 and 2_000_000 are numbers."""
    import yaml

    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError:
        return text
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


# --- error texts ---------------------------------------------------------------------------------


def explained(error: ValidationError, *above: str) -> ConfigError:
    """What is wrong as one line; `above` is where in a config the part stands."""
    found = [{**detail, "loc": _place(above, detail["loc"])} for detail in error.errors()]
    return ConfigError(misfits(found, _unknown, repeat=True))


def _place(above: tuple[str, ...], within: Place) -> Place:
    return (*above, *(part for part in within if part not in ("sqlite", "memory")))


def _unknown(place: Place) -> str:
    near = _nearest_keys(place)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"unknown config key {'.'.join(map(str, place))!r}{hint}"


def _nearest_keys(where: tuple[int | str, ...]) -> tuple[str, ...]:
    """Full keys like the unknown one: by its own level first, then anywhere."""
    *parents, last = [str(part) for part in where]
    keys = [key for key, _ in config_keys()]
    if (meant := key_of(last)) in keys:
        return (str(meant),)
    parts = {key.rpartition(".")[0] for key in keys}  # which hold keys, and are none to set
    elsewhere = [key for key in keys if key.split(".")[-1] == last and key not in parts]
    if elsewhere:
        return (elsewhere[0],)
    siblings = [k for k in keys if k.split(".")[:-1] == parents]
    near = nearest_names(last, [k.split(".")[-1] for k in siblings], 1)
    if near:
        return (".".join([*parents, near[0]]),)
    leaves: dict[str, str] = {}
    for key in keys:
        leaves.setdefault(key.split(".")[-1], key)
    return tuple(leaves[leaf] for leaf in nearest_names(last, leaves, 2))


def meant_key(name: str) -> str | None:
    """The config key that somebody means who was taught it elsewhere, or left out where it is."""
    return key_of(name) or next((key for key, _ in config_keys() if bare(key) == bare(name)), None)


def config_keys() -> Iterable[tuple[str, Any]]:
    """Every dotted key with its field."""
    yield from _keys_of(RunConfig, "")


def _keys_of(model: type[BaseModel], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield prefix + name, field
        for part in _models_in(field.annotation):
            yield from _keys_of(part, f"{prefix}{name}.")


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    if annotation is AlgorithmConfig:
        yield from models().values()
    elif annotation is BusConfig:
        yield from bus_models().values()
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for option in typing.get_args(annotation):
            yield from _models_in(option)
