"""What a run learns with, told before it begins, and what became of it, told after its end."""

from __future__ import annotations

from typing import Any

from rookery.cli.text import last_episodes
from rookery.config.algorithm import find
from rookery.config.kinds import ALGORITHMS
from rookery.config.models import RunConfig
from rookery.config.tuned import entry_for
from rookery.control.bounds import twice

_SETTINGS = (
    ("learning rate", "learning_rate"),
    ("passes", "epochs"),
    ("minibatch", "minibatch_size"),
    ("minibatches", "minibatches"),
    ("gamma", "gamma"),
    ("entropy", "entropy_coef"),
)


def settings(config: RunConfig) -> str:
    """What it learns with, and whether somebody measured that for this environment."""
    algorithm, environment = config.algorithm, config.environment.id
    entry = None
    if algorithm.kind in ALGORITHMS:
        entry = entry_for(find(algorithm.kind).tuned, environment)
    began = "general defaults" if entry is None else f"defaults measured on {entry}"
    words = [
        f"{word} {value:g}" for word, name in _SETTINGS if (value := getattr(algorithm, name, None))
    ]
    normalised = [
        word
        for word, is_so in (
            ("observations", config.network.normalize_observations),
            ("returns", getattr(algorithm, "normalize_returns", False)),
        )
        if is_so
    ]
    if normalised:
        words.append(f"{' and '.join(normalised)} normalised")
    return f"  {began} and what you set: {', '.join(words)}"


def summary(result: dict[str, Any], config: RunConfig, at: str = "") -> str:
    """What happened, and what to try next; `at`: the option that names a run's server."""
    mean, run, environment = result["mean_return_100"], result["run"], config.environment.id
    lines = [
        f"{result['status']}: {result['reason']}",
        f"  {result['env_steps']:,} steps"
        + _pace(result)
        + (f", {return_kind(config)} {mean:.1f} {_whose(result)}" if mean is not None else ""),
    ]
    if (new := result.get("new_return")) is not None:
        lines.append(f"  the new policy: a return of {new:.1f} in fresh episodes, greedily")
    if result["status"] == "failed":
        look = [f"rookery why {run}{at}"]
    elif result["status"] in ("stopped", "limited"):
        limited = result["status"] == "limited"
        more = f" --steps {twice(result['env_steps'])}" if limited else ""
        look = [f"rookery resume {run}{more}{at}"]
    else:
        look = [f"rookery eval {run}{at}"]
        if "league" in result:
            look = [f"rookery match {environment} {run} script:random{at}"]
        if not at:  # they read the run's own files
            look += [f"rookery ladder {run}"] if "league" in result else []
            look += [f"rookery plot {run}"]
        look += [f"rookery runs show {run}{at}"]
    return "\n".join([*lines, "  try: " + "\n       ".join(look)])


def return_kind(config: RunConfig) -> str:
    """Whose return it is: a replay's episodes were played by another policy."""
    return "recorded return" if config.replay.run else "return"


def _pace(result: dict[str, Any]) -> str:
    """By one clock: that of the training, which is over all lives of the run."""
    seconds = result["train_s"]
    if not seconds:
        return f" in {result['wall_s']:.1f} s"
    return f" in {seconds:.1f} s of training, {result['steps_per_s']:,.0f} steps/s"


def _whose(result: dict[str, Any]) -> str:
    policy = f"of {result['policy']}, " if "policies" in result else ""
    return f"({policy}mean of the last {last_episodes(result['episodes'])} training episodes)"
