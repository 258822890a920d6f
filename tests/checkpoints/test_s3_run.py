"""A run whose checkpoints are in an S3 store: killed, resumed, evaluated, deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.s3_server import BUCKET, SECRET, S3Server
from tests.conftest import Cli


@pytest.fixture
def s3_cli(cli: Cli, s3: S3Server) -> Cli:
    cli.environment |= s3.environment
    return cli


def written(directory: Path) -> str:
    """All that the run's home and its commands have on disk."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return "\n".join(path.read_bytes().decode(errors="replace") for path in files)


@pytest.mark.soak
def test_a_run_goes_on_from_its_store(s3_cli: Cli, s3: S3Server, tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/runs/one"
    s3_cli.home.path.parent.mkdir(exist_ok=True)
    often = ("--set", f"checkpoint.uri={uri}", "--set", "checkpoint.interval_s=0.5")
    started = s3_cli.start("train", "CartPole-v1", "--steps", 10_000_000, "--actors", 1, *often)
    run = started.run

    def markers() -> list[str]:
        return [key for key in s3.keys("runs/one/") if key.count("/") == 2]

    started.wait_until(lambda: len(markers()) >= 2, "two checkpoints in the store")
    learner = started.worker("learner")
    assert learner is not None
    learner.kill()
    started.wait_until(lambda: "/000002-" in markers()[-1], "a checkpoint of the next learner")
    started.interrupt()
    last = markers()[-1].rpartition("/")[2].removesuffix(".json")
    assert not (s3_cli.home.run_dir(run) / "checkpoints").exists()

    shown = s3_cli("runs", "show", "last", "--json").json
    assert shown["checkpoints"][-1] == last and shown["updates"] > 0
    steps = shown["env_steps"]
    evaluated = s3_cli("eval", "last", "--episodes", 1, "--json").json
    assert evaluated["checkpoint"] == last
    resumed = s3_cli("resume", "last", "--steps", steps + 5_000, "--json", timeout=200).json
    assert resumed["env_steps"] >= steps + 5_000
    assert SECRET not in written(tmp_path)

    with s3.client() as client:
        client.put_object(Bucket=BUCKET, Key="runs/one/notes.txt", Body=b"a person's own")
        client.put_object(Bucket=BUCKET, Key="runs/other.json", Body=b"another's")
    s3_cli("runs", "delete", run, "--yes")
    assert s3.keys("runs/") == ["runs/one/notes.txt", "runs/other.json"]


def test_a_store_that_cannot_be_used_makes_no_run(s3_cli: Cli, s3: S3Server) -> None:
    uri = "checkpoint.uri=s3://absent/a"
    said = s3_cli.refused("train", "CartPole-v1", "--steps", 1000, "--set", uri)
    assert "there is no bucket absent" in said
    assert not s3_cli.home.states()
