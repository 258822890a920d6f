"""Rookery against stable-baselines3 and a CleanRL-style loop: PPO on CartPole-v1, in one run.

    python benchmarks/versus.py [--repeats 3] [--json]

Five contenders take turns, strictly one process tree at a time, with a new seed every turn:

  sb3        stable-baselines3, 64 environments, in an environment of its own (`sb3_cartpole.py`)
  identical  `rookery train` with the same hyperparameters as sb3
  defaults   `rookery train` as a user gets it, with a warm and with a cold compile cache
  cleanrl    one loop on torch, 256 environments, minibatches of 2048 (`cleanrl_cartpole.py`)
  wide       `rookery train` with the same batch as cleanrl

Reported are medians, the individual values, and the five ratios the project promises. Seconds
are this process's clock from Popen: for sb3 until it says it is solved, for Rookery until the
whole command has exited. Only the standard library is used here.

The exit code is 0 when everything ran, whatever the ratios; 1, with one line, when it did not.
"""

import argparse
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, Any

HERE = Path(__file__).resolve().parent
SOLVED_RETURN = 475
INSTALL_TIMEOUT_S = 3600.0
RUN_TIMEOUT_S = 600.0
POLL_INTERVAL_S = 0.005  # the resolution of every time measured here
SB3_SOLVE_BUDGET_STEPS = 1_000_000

TORCH = "torch==2.13.0"
REQUIREMENTS = (TORCH, "stable-baselines3==2.9.2", "gymnasium==1.4.0")
# The values of sb3_cartpole.py and, after `schedule`, stable-baselines3's PPO defaults: all of them
# written out, so that tuning Rookery's defaults for CartPole-v1 cannot change this contender.
IDENTICAL_HYPERPARAMETERS = {
    "actors.rollout_steps": "64",
    "algorithm.minibatch_size": "1024",
    "algorithm.epochs": "6",
    "algorithm.learning_rate": "2e-3",
    "algorithm.schedule": "constant",
    "algorithm.gamma": "0.99",
    "algorithm.gae_lambda": "0.95",
    "algorithm.clip": "0.2",
    "algorithm.entropy_coef": "0.0",
    "algorithm.value_coef": "0.5",
    "algorithm.max_grad_norm": "0.5",
    "algorithm.normalize_advantages": "true",
    "algorithm.normalize_returns": "false",
    "algorithm.value_clip": "null",
    "algorithm.kl_stop": "null",
    "network.hidden": "[64, 64]",
    "network.activation": "tanh",
    "network.normalize_observations": "false",
    "learner.fragments_per_batch": "1",
}
# The batch of cleanrl_cartpole.py; the other hyperparameters do not change the work.
WIDE_WORDS = ["--actors", "1", "--envs-per-actor", "256"]
WIDE_WORDS += ["--set", "actors.rollout_steps=32", "--set", "algorithm.minibatch_size=2048"]
WIDE_WORDS += ["--set", "algorithm.epochs=4", "--set", "learner.fragments_per_batch=1"]
WIDE_WORDS += ["--set", "network.hidden=[64, 64]", "--set", "network.activation=tanh"]


class BenchmarkError(Exception):
    """Something could not be run; the message is one line that says what and why."""


# --- one process, timed -------------------------------------------------------------------------


@dataclass(frozen=True)
class Finished:
    """A process that ended by itself. Seconds count from just before Popen."""

    name: str
    returncode: int
    stdout: str
    first_output_s: float  # when something first stood on stdout
    exit_s: float

    def json(self) -> dict[str, Any]:
        try:
            result = json.loads(self.stdout)
        except ValueError:
            result = None
        if not isinstance(result, dict):
            raise BenchmarkError(f"{self.name} printed no JSON object: {self.stdout[:200]!r}")
        return result

    def number(self, key: str) -> float:
        value = self.json().get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BenchmarkError(f"{self.name}: no number {key!r} in its JSON, but {value!r}")
        return float(value)


def run(
    name: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float = RUN_TIMEOUT_S,
    accept: Sequence[int] = (0,),
) -> Finished:
    """Run one process to its end, and kill its whole group if it outlives the time-out.

    Its output goes to files, not pipes: a pipe that a grandchild holds open would hide the end.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        started_s = time.monotonic()
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            first_output_s, exit_s = watch(process, stdout.fileno(), started_s, timeout_s)
        finally:
            kill_group(process)
        output, errors = contents(stdout), contents(stderr)
    if process.returncode not in accept or math.isinf(exit_s):
        end = f"exited with {process.returncode}"
        if math.isinf(exit_s):
            end = f"did not end within {timeout_s:.0f} s"
        lines = errors.split("\n")
        raise BenchmarkError(f"{name} {end}: {lines[-1].strip() or 'nothing on stderr'}")
    say(f"{name}: took {exit_s:.1f} s")
    return Finished(name, process.returncode, output, min(first_output_s, exit_s), exit_s)


def watch(
    process: subprocess.Popen[bytes], stdout_fd: int, started_s: float, timeout_s: float
) -> tuple[float, float]:
    """Seconds to the first output and to the exit; infinite for what did not come in time."""
    first_output_s = math.inf
    while True:
        elapsed_s = time.monotonic() - started_s
        if math.isinf(first_output_s) and os.fstat(stdout_fd).st_size > 0:
            first_output_s = elapsed_s
        if process.poll() is not None:
            return first_output_s, elapsed_s
        if elapsed_s > timeout_s:
            return first_output_s, math.inf
        time.sleep(POLL_INTERVAL_S)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Does nothing to a process that has ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def contents(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()


# --- the peer -----------------------------------------------------------------------------------


def cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rookery"


def ensure_python(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of an environment that has these packages; the first call installs them."""
    venv = cache_dir() / name
    python = venv / "bin" / "python"
    stamp = venv / "installed.txt"  # written last: a half-made environment is made again
    wanted = f"python {platform.python_version()}\n" + "\n".join(requirements) + "\n"
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return python

    say(f"installing {', '.join(requirements)} into {venv} (once; some minutes, up to 5 GB)")
    install("venv", [sys.executable, "-m", "venv", "--clear", str(venv)])
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    install("packages", [*pip, *requirements])
    stamp.write_text(wanted)
    return python


def install(name: str, argv: Sequence[str]) -> None:
    run(f"installing {name}", argv, os.environ, timeout_s=INSTALL_TIMEOUT_S)


@dataclass(frozen=True)
class StableBaselines3:
    python: Path

    def _run(self, measure: str, steps: int, seed: int) -> Finished:
        script = str(HERE / "sb3_cartpole.py")
        words = [measure, "--steps", str(steps), "--seed", str(seed)]
        words += ["--until-return", str(SOLVED_RETURN)]
        name = f"sb3 {measure}, seed {seed}"
        return run(name, [str(self.python), script, *words], os.environ)

    def versions(self) -> dict[str, str]:
        """A short untimed run, which also brings torch into the system's file cache."""
        versions: dict[str, str] = self._run("speed", steps=8192, seed=0).json()["versions"]
        return versions

    def steps_per_s(self, steps: int, seed: int) -> float:
        return self._run("speed", steps, seed).number("steps_per_s")

    def seconds_to_solve(self, budget_steps: int, seed: int) -> float:
        finished = self._run("solve", budget_steps, seed)
        return finished.first_output_s if finished.json()["solved"] else math.inf


@dataclass(frozen=True)
class CleanRL:
    python: Path

    def steps_per_s(self, steps: int, seed: int) -> float:
        argv = [str(self.python), str(HERE / "cleanrl_cartpole.py")]
        argv += ["--steps", str(steps), "--seed", str(seed)]
        return run(f"cleanrl speed, seed {seed}", argv, os.environ).number("steps_per_s")


# --- Rookery ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Solved:
    exit_s: float  # Popen to exit of the whole command: the harshest reading
    wall_s: float  # what the command itself reports


@dataclass(frozen=True)
class Rookery:
    home: Path  # holds the runs, and the empty compile caches of the cold runs

    def _train(
        self,
        name: str,
        words: Sequence[str],
        accept: Sequence[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        argv = [sys.executable, "-m", "rookery", "train", "CartPole-v1", "--json", *words]
        whole_env = {**os.environ, "ROOKERY_HOME": str(self.home / "runs"), **(env or {})}
        return run(f"rookery {name}", argv, whole_env, accept=accept)

    def steps_per_s(self, name: str, steps: int, seed: int, words: Sequence[str] = ()) -> float:
        words = ["--steps", str(steps), "--seed", str(seed), *words]
        finished = self._train(f"{name} speed, seed {seed}", words)
        if finished.number("env_steps") < 0.9 * steps:
            raise BenchmarkError(f"{finished.name}: stopped long before {steps} steps")
        return finished.number("steady_steps_per_s")

    def seconds_to_solve(
        self, name: str, seed: int, env: Mapping[str, str] | None = None
    ) -> Solved:
        words = ["--until-return", str(SOLVED_RETURN), "--seed", str(seed)]
        # Exit code 3: a limit came before the return.
        finished = self._train(f"{name} solve, seed {seed}", words, accept=(0, 3), env=env)
        if finished.returncode == 3:
            return Solved(math.inf, math.inf)
        return Solved(finished.exit_s, finished.number("wall_s"))

    def seconds_to_solve_cold(self, seed: int) -> Solved:
        with tempfile.TemporaryDirectory(prefix="compile-cache-", dir=self.home) as empty:
            return self.seconds_to_solve("cold", seed, env={"ROOKERY_COMPILE_CACHE": empty})


# --- the comparison -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Repeat:
    """One turn of every contender, all with the same seed."""

    seed: int
    sb3_steps_per_s: float
    identical_steps_per_s: float
    defaults_steps_per_s: float
    cleanrl_steps_per_s: float
    wide_steps_per_s: float
    sb3_solve_s: float
    warm: Solved
    cold: Solved


@dataclass(frozen=True)
class Row:
    """One measured quantity: a value per repeat; infinite seconds mean 'not solved'."""

    key: str
    label: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)


@dataclass(frozen=True)
class Ratio:
    """Rookery's median over its peer's, with what we promise of it."""

    key: str
    label: str
    value: float
    target: float
    at_least: bool  # otherwise at most

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def promise(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.target:g}"


def identical_words() -> list[str]:
    settings = [f"{key}={value}" for key, value in IDENTICAL_HYPERPARAMETERS.items()]
    words = ["--actors", "1", "--envs-per-actor", "64"]
    return words + [word for setting in settings for word in ("--set", setting)]


def measure(
    sb3: StableBaselines3,
    cleanrl: CleanRL,
    rookery: Rookery,
    seed: int,
    sb3_steps: int,
    rookery_steps: int,
) -> Repeat:
    """Every contender once, neighbours in time so that a slow minute hits all of them."""
    return Repeat(
        seed=seed,
        sb3_steps_per_s=sb3.steps_per_s(sb3_steps, seed),
        identical_steps_per_s=rookery.steps_per_s(
            "identical", rookery_steps, seed, identical_words()
        ),
        defaults_steps_per_s=rookery.steps_per_s("defaults", rookery_steps, seed),
        cleanrl_steps_per_s=cleanrl.steps_per_s(rookery_steps // 4, seed),
        wide_steps_per_s=rookery.steps_per_s("wide", rookery_steps, seed, WIDE_WORDS),
        sb3_solve_s=sb3.seconds_to_solve(SB3_SOLVE_BUDGET_STEPS, seed),
        warm=rookery.seconds_to_solve("warm", seed),
        cold=rookery.seconds_to_solve_cold(seed),
    )


def rows(repeats: Sequence[Repeat]) -> list[Row]:
    def row(key: str, label: str, values: Iterator[float]) -> Row:
        return Row(key, label, tuple(values))

    return [
        row("sb3_steps_per_s", "sb3, steps/s", (r.sb3_steps_per_s for r in repeats)),
        row(
            "identical_steps_per_s",
            "rookery identical, steps/s",
            (r.identical_steps_per_s for r in repeats),
        ),
        row(
            "defaults_steps_per_s",
            "rookery defaults, steps/s",
            (r.defaults_steps_per_s for r in repeats),
        ),
        row(
            "cleanrl_steps_per_s", "cleanrl loop, steps/s", (r.cleanrl_steps_per_s for r in repeats)
        ),
        row("wide_steps_per_s", "rookery wide, steps/s", (r.wide_steps_per_s for r in repeats)),
        row("sb3_solve_s", "sb3, s to 475", (r.sb3_solve_s for r in repeats)),
        row("warm_solve_s", "rookery warm, s to exit", (r.warm.exit_s for r in repeats)),
        row("warm_wall_s", "rookery warm, own wall_s", (r.warm.wall_s for r in repeats)),
        row("cold_solve_s", "rookery cold, s to exit", (r.cold.exit_s for r in repeats)),
        row("cold_wall_s", "rookery cold, own wall_s", (r.cold.wall_s for r in repeats)),
    ]


def ratios(measured: Sequence[Row]) -> list[Ratio]:
    median_of = {row.key: row.median for row in measured}

    def ratio(key: str, label: str, over: str, target: float, at_least: bool) -> Ratio:
        ours, theirs = median_of[key], median_of[over]
        value = ours / theirs if math.isfinite(ours) else ours
        return Ratio(key, label, value, target, at_least)

    return [
        ratio("identical_steps_per_s", "(a) steps/s, identical", "sb3_steps_per_s", 4.0, True),
        ratio("defaults_steps_per_s", "(b) steps/s, defaults", "sb3_steps_per_s", 6.5, True),
        ratio("warm_solve_s", "(b) seconds to 475, warm", "sb3_solve_s", 0.4, False),
        ratio("cold_solve_s", "(b) seconds to 475, cold", "sb3_solve_s", 0.65, False),
        ratio("wide_steps_per_s", "(c) steps/s, as cleanrl", "cleanrl_steps_per_s", 4.0, True),
    ]


# --- what is said -------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"versus: {text}", file=sys.stderr, flush=True)


def shown(value: float) -> str:
    if not math.isfinite(value):
        return "not solved"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def print_table(
    measured: Sequence[Row], promised: Sequence[Ratio], versions: Mapping[str, str]
) -> None:
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"PPO on CartPole-v1, {os.cpu_count()} cores, {said}\n")
    print(f"{'':28}{'median':>12}   each repeat")
    for row in measured:
        each = "  ".join(f"{shown(value):>10}" for value in row.values)
        print(f"{row.label:28}{shown(row.median):>12}   {each}")
    print(f"\n{'rookery / its peer':28}{'ratio':>12}   promised")
    for ratio in promised:
        verdict = "met" if ratio.met else "NOT met"
        print(f"{ratio.label:28}{shown(ratio.value):>12}   {ratio.promise:8} {verdict}")


def as_json(
    repeats: Sequence[Repeat],
    measured: Sequence[Row],
    promised: Sequence[Ratio],
    versions: Mapping[str, str],
) -> str:
    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return json.dumps(
        {
            "versions": dict(versions),
            "cores": os.cpu_count(),
            "seeds": [repeat.seed for repeat in repeats],
            "measured": {
                row.key: {
                    "median": finite(row.median),
                    "values": [finite(value) for value in row.values],
                }
                for row in measured
            },
            "ratios": {
                ratio.key: {
                    "label": ratio.label,
                    "value": finite(ratio.value),
                    "promised": ratio.promise,
                    "met": ratio.met,
                }
                for ratio in promised
            },
        },
        indent=2,
    )


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        epilog="Needs an otherwise idle machine: nothing else should run beside it.",
    )
    parser.add_argument("--repeats", type=positive, default=3, help="turns of each (default 3)")
    parser.add_argument("--seed", type=int, default=1, help="of the first turn, then one more each")
    parser.add_argument("--sb3-steps", type=positive, default=300_000, help="of a speed run")
    parser.add_argument("--rookery-steps", type=positive, default=2_000_000, help="of a speed run")
    parser.add_argument(
        "--bus", choices=["kafka"], help="compare this bus with the embedded one instead"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser.parse_args()


def benchmark(args: argparse.Namespace, home: Path) -> None:
    if args.bus == "kafka":
        from versus_kafka import compare, report

        figures = compare(home, args.repeats, args.seed, args.rookery_steps)
        report(figures, args.json)
        return
    python = ensure_python("versus-venv", REQUIREMENTS)
    sb3, cleanrl, rookery = StableBaselines3(python), CleanRL(python), Rookery(home)
    say("warming up, untimed")
    versions = {"python": platform.python_version(), **sb3.versions()}
    rookery.seconds_to_solve("warm-up", seed=args.seed + args.repeats)
    rookery.steps_per_s("warm-up wide", 100_000, args.seed, WIDE_WORDS)

    repeats: list[Repeat] = []
    for seed in range(args.seed, args.seed + args.repeats):
        say(f"repeat {len(repeats) + 1} of {args.repeats}")
        repeats.append(measure(sb3, cleanrl, rookery, seed, args.sb3_steps, args.rookery_steps))
    measured = rows(repeats)
    promised = ratios(measured)
    if args.json:
        print(as_json(repeats, measured, promised, versions))
    else:
        print_table(measured, promised, versions)


def main() -> int:
    args = parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # both sides start from compiled bytecode
    home = Path(tempfile.mkdtemp(prefix="rookery-versus-"))
    try:
        benchmark(args, home)
    except (BenchmarkError, OSError) as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
