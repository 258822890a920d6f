"""The verbs that steer runs: through the home's own log, and through a server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rookery.control.lease import SERVER, take_lock
from rookery.control.run_log import RunLog
from rookery.messages import CommandAccepted, CommandRejected, StopRun

if TYPE_CHECKING:
    from tests.conftest import Cli, Served

SMALL = ("--envs-per-actor", 8, "--set", "actors.rollout_steps=32")
CARTPOLE = ("CartPole-v1", *SMALL)
ENDLESS = (*CARTPOLE, "--steps", 10**9)


def answers(cli: Cli, run: str) -> list[bool]:
    """Whether each command that was answered was accepted."""
    said = (m for m in RunLog(cli.home, run).read())
    return [
        isinstance(m, CommandAccepted)
        for m in said
        if isinstance(m, CommandAccepted | CommandRejected)
    ]


# --- through the log of the home -----------------------------------------------------------------


@pytest.fixture(scope="module")
def queued(shared_cli: Cli) -> str:
    """A run that was submitted where no server lives."""
    done = shared_cli("submit", *CARTPOLE, "--steps", 1500, "--reason", "a try", "--json")
    assert done.json["outcome"] == "accepted" and done.json["kind"] == "create_run"
    assert done.stderr == "queued: no server runs here: rookery serve\n"
    return str(done.json["run"])


def test_a_submitted_run_waits_for_a_server(shared_cli: Cli, queued: str) -> None:
    rows = shared_cli("runs", "list", "--json").json["runs"]
    assert [row["status"] for row in rows if row["run"] == queued] == ["queued"]
    text = shared_cli("submit", *CARTPOLE, "--no-start").stdout
    assert "it waits to be started" in text and "queued" not in text
    assert shared_cli.home.state(shared_cli.home.find("last")).status == "created"


def test_a_run_is_labelled_in_part(shared_cli: Cli) -> None:
    run = shared_cli("submit", *CARTPOLE, "--no-start", "--json").json["run"]
    given = ("--name", "first try", "--tag", "nightly", "--tag", "small", "--notes", "why not")
    said = shared_cli("label", run, *given).stdout
    assert "name: 'first try'; tags: nightly, small; notes: 7 letters" in said
    shared_cli("label", "first try", "--tag", "")
    shown = shared_cli("runs", "show", run, "--json").json
    assert (shown["name"], shown["tags"], shown["notes"]) == ("first try", [], "why not")
    assert "nothing changes" in shared_cli("label", run).stdout


def test_a_run_in_a_queue_says_for_what_it_waits(shared_cli: Cli, queued: str) -> None:
    told = f"{queued} waits for a server: rookery serve, or here: rookery resume {queued}"
    assert told in shared_cli("runs", "list").stdout.splitlines()
    assert shared_cli("why", queued).stdout.strip() == told
    assert "waits for  a server" in shared_cli("runs", "show", queued).stdout


def test_resuming_a_run_in_a_servers_queue_leaves_it_there(shared_cli: Cli) -> None:
    queued = shared_cli("submit", *CARTPOLE, "--steps", 1500, "--json").json["run"]
    lock = take_lock(shared_cli.home.path / SERVER)  # a server that has not looked up yet
    assert lock is not None
    with lock:
        done = shared_cli("resume", queued, "--json")
    assert done.json["kind"] == "resume_run" and "waits in the queue" in done.json["effect"]
    assert shared_cli.home.state(queued).status == "queued"


def test_nobody_carries_it_so_the_answer_is_given_here(shared_cli: Cli, queued: str) -> None:
    before = len(answers(shared_cli, queued))
    set_ = shared_cli("set", queued, "learning_rate=1e-4", "--reason", "too wild")
    assert "algorithm.learning_rate 0.002 -> 0.0001" in set_.stdout
    shared_cli("set", queued, "algorithm.gamma=0.98", "clip=0.1")
    shared_cli("scale", queued, "--actors", 2, "--learner", 1)
    state = shared_cli.home.state(queued)
    assert state.hyperparameters == {
        "algorithm.learning_rate": 1e-4,
        "algorithm.gamma": 0.98,
        "algorithm.clip": 0.1,
    }
    assert state.actors_wanted == 2 and answers(shared_cli, queued)[before:] == [True] * 4
    stopped = shared_cli("stop", queued, "--json").json
    assert stopped["outcome"] == "accepted" and stopped["run"] == queued
    assert shared_cli.home.state(queued).status == "stopped"
    assert f"rookery resume {queued}" in shared_cli("start", queued).stdout
    assert shared_cli.home.state(queued).status == "queued"


def test_a_dry_run_says_what_it_would_do_and_does_nothing(shared_cli: Cli, queued: str) -> None:
    before = len(answers(shared_cli, queued)), shared_cli.home.state(queued)
    told = shared_cli("scale", queued, "--actors", 3, "--dry-run").stdout
    assert told.startswith(f"{queued}: would be accepted: actors ")
    found = shared_cli("set", queued, "gamma=2", "--dry-run", "--json", expect=2).json
    assert found["outcome"] == "would_reject" and "gamma" in found["why"]
    assert "would be rejected" in shared_cli.refused("set", queued, "gamma=2", "--dry-run")
    shared_cli("submit", *CARTPOLE, "--dry-run")
    shared_cli("runs", "delete", queued, "--dry-run", expect=2)
    assert (len(answers(shared_cli, queued)), shared_cli.home.state(queued)) == before


def test_a_rejected_command_is_one_line_and_exit_code_2(shared_cli: Cli, queued: str) -> None:
    shared_cli("stop", queued)
    assert "start it first" in shared_cli.refused("pause", queued)
    assert "limit of 16" in shared_cli.refused("scale", queued, "--actors", 99, "--json")
    assert answers(shared_cli, queued)[-2:] == [False, False]
    shared_cli("start", queued)


def test_the_audit_says_who_why_and_what_became_of_it(shared_cli: Cli, queued: str) -> None:
    shared_cli("set", queued, "learning_rate=2e-4", "--reason", "too wild")
    entries = shared_cli("audit", queued, "--json").json["entries"]
    first = entries[0]
    assert (first["kind"], first["reason"], first["origin"]) == ("create_run", "a try", "local")
    assert all(entry["author"] and entry["outcome"] != "waiting" for entry in entries)
    assert entries[1]["kind"] == "start_run"
    assert [e["seq"] for e in entries] == sorted(e["seq"] for e in entries)
    assert any(entry["reason"] == "too wild" for entry in entries)
    assert len(shared_cli("audit", queued, "-n", 2, "--json").json["entries"]) == 2
    text = shared_cli("audit").stdout
    assert "create_run CartPole-v1" in text and "learning_rate" in text


@pytest.mark.soak
def test_an_owner_that_does_not_answer_is_waited_for_and_then_told_of(cli: Cli) -> None:
    run = cli("submit", *CARTPOLE, "--steps", 100, "--json").json["run"]
    lease = cli.home.take_lease(run)
    assert lease is not None
    with lease:
        done = cli("pause", run)
        assert "waits until somebody carries the run" in done.stdout
    assert cli("pause", run, "--json").json["outcome"] == "accepted"
    assert len(answers(cli, run)) == 4  # create, start, and now both


def test_a_run_of_another_terminal_is_steered_from_here(cli: Cli) -> None:
    running = cli.start("train", *ENDLESS, "--json")
    running.wait_until(lambda: running.env_steps > 500, "training")
    assert "stay in memory" in cli("pause", running.run).stdout
    assert cli.home.state(running.run).status == "paused"
    assert "goes on where it was held" in cli("resume", "last").stdout
    assert cli.home.state(running.run).status == "running"
    assert "stop it first" in cli.refused("runs", "delete", running.run, "--yes")
    cli("checkpoint", running.run)
    running.wait_until(lambda: cli.home.state(running.run).checkpoint, "a checkpoint")
    assert "actors 1 -> 2" in cli("scale", running.run, "--actors", 2).stdout
    cli("stop", running.run, "--reason", "enough")
    assert running.finish(expect=130).json["status"] == "stopped"
    cli("runs", "delete", running.run, "--yes")
    assert not cli.home.run_dir(running.run).exists()


@pytest.mark.soak
def test_what_its_owner_left_behind_can_be_stopped_and_deleted(cli: Cli) -> None:
    running = cli.start("train", *ENDLESS)
    running.wait_until(lambda: running.env_steps > 500, "training")
    running.kill()
    assert cli("runs", "show", running.run, "--json").json["status"] == "interrupted"
    cli("stop", running.run)
    assert cli.home.state(running.run).status == "stopped"
    cli("start", running.run)
    assert cli("runs", "delete", running.run, "--yes", "--json").json["deleted"] is True
    assert running.run not in cli.home.states()
    assert not cli.home.run_dir(running.run).exists()


# --- tokens --------------------------------------------------------------------------------------


def test_tokens_are_made_listed_and_revoked(shared_cli: Cli) -> None:
    made = shared_cli("tokens", "create", "--scope", "read", "--ttl", "8h", "--label", "bob")
    assert made.stdout.startswith("rk_") and len(made.stdout.splitlines()) == 1
    assert "shown this once" in made.stderr
    found = shared_cli("tokens", "list", "--json").json["tokens"]
    token = next(token for token in found if token["label"] == "bob")
    assert token["scope"] == "read" and token["id"] in made.stdout
    assert token["expires_s"] - token["created_s"] == pytest.approx(8 * 3600)
    listed = shared_cli("tokens").stdout
    assert token["id"] in listed and made.stdout.strip() not in listed
    assert shared_cli("tokens", "revoke", token["id"], "--json").json["revoked"] is True
    assert token["id"] in shared_cli.refused("tokens", "revoke", token["id"])


# --- bad input -----------------------------------------------------------------------------------

NOWHERE = ("--server", "http://127.0.0.1:1/#token=rk_secret")
REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "no such run": (("pause", "nope"), "rookery runs list"),
    "no environment": (("submit",), "no environment"),
    "unknown environment": (("submit", "CartPoel-v1"), "CartPole-v1"),
    "nothing to scale": (("scale", "last"), "--actors"),
    "half a learner": (("scale", "last", "--learner", 0.5), "--learner"),
    "half an actor": (("scale", "last", "--actors", 1.5), "--actors"),
    "no value": (("set", "last"), "KEY=VALUE"),
    "no number": (("set", "last", "gamma=high"), "not a number"),
    "no key": (("set", "last", "0.98"), "KEY=VALUE"),
    "not live": (("set", "last", "actors.count=3"), "live hyperparameter"),
    "nearly live": (("set", "last", "learning_rat=1"), "algorithm.learning_rate"),
    "no scope": (("tokens", "create"), "--scope"),
    "a wrong scope": (("tokens", "create", "--scope", "root"), "operate"),
    "no time": (("tokens", "create", "--scope", "read", "--ttl", "soon"), "8h"),
    "no time at all": (("tokens", "create", "--scope", "read", "--ttl", "0"), "above 0"),
    "a wrong port": (("serve", "--port", "http"), "--port"),
    "an audit of no run": (("audit", "nope"), "rookery runs list"),
    "nobody there": (("runs", "list", *NOWHERE), "rookery serve"),
    "nobody to train": (("train", "CartPole-v1", *NOWHERE), "rookery serve"),
    "before a second word": (("runs", *NOWHERE, "list"), "rookery serve"),
    "no address": (("stop", "last", "--server", "localhost:7860"), "http://HOST:PORT"),
    "no TLS": (("stop", "last", "--server", "http://example.org/#token=rk_secret"), "https"),
    "no token": (("stop", "last", "--server", "http://127.0.0.1:1"), "ROOKERY_TOKEN"),
    "a verb without a server": (("plot", "last", *NOWHERE), "--server"),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED)
def test_is_refused_in_one_line(
    shared_cli: Cli, queued: str, arguments: tuple[object, ...], says: str
) -> None:
    error = shared_cli.refused_here(*arguments)
    assert says in error and "rk_secret" not in error.partition("#token=")[0]


def test_what_launchers_and_servers_type_is_not_listed(shared_cli: Cli) -> None:
    text = shared_cli("--help").stdout
    assert all(f"    {name}" in text for name in ("submit", "set", "serve", "tokens", "audit"))
    assert not any(f"    {name} " in text for name in ("job", "prepare", "standby"))
    assert "prepare" not in shared_cli.refused("prepar")


# --- through a server ----------------------------------------------------------------------------


class Remote:
    """`rookery` at a server, in a home of its own where nothing is."""

    def __init__(self, cli: Cli, server: Served, home: str) -> None:
        self.cli, self.server = cli, server
        self.environment = {
            "ROOKERY_HOME": home,
            "ROOKERY_SERVER": server.url,
            "ROOKERY_TOKEN": server.token,
        }

    def __call__(self, *arguments: object, **options: Any) -> Any:
        return self.cli(*arguments, env=self.environment, **options)

    def refused(self, *arguments: object) -> str:
        return self.cli.refused(*arguments, env=self.environment)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rookery", *map(str, arguments)],
            env={**self.cli.environment, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared_cli: Cli, queued: str) -> Served:
    """Of the home in which a run is queued."""
    return shared_cli.serve("--cpus", 4)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory, shared_cli: Cli, server: Served) -> Remote:
    return Remote(shared_cli, server, str(tmp_path_factory.mktemp("elsewhere")))


@pytest.fixture(scope="module")
def run(remote: Remote, eventually: Callable[..., Any]) -> str:
    """A run that goes on for all tests of a server."""
    found = remote("submit", *ENDLESS, "--reason", "from afar", "--json").json
    eventually(lambda: _row(remote, found["run"])["env_steps"] > 500, "training")
    return str(found["run"])


@pytest.fixture(scope="module")
def eventually() -> Callable[..., Any]:
    import time

    def wait(condition: Callable[[], Any], what: str, timeout: float = 120.0) -> Any:
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            assert time.monotonic() < deadline, f"waited {timeout:g} s in vain for {what}"
            time.sleep(0.1)
        return found

    return wait


def _row(remote: Remote, run: str) -> Any:
    return remote("runs", "show", run, "--json").json


def test_a_server_takes_up_what_was_queued(
    shared_cli: Cli, server: Served, queued: str, eventually: Callable[..., Any]
) -> None:
    eventually(lambda: shared_cli.home.state(queued).status == "finished", "the end of the run")


@pytest.mark.soak
def test_every_change_goes_through_the_server(remote: Remote, shared_cli: Cli, run: str) -> None:
    assert "stay in memory" in remote("pause", run).stdout
    assert shared_cli.home.state(run).status == "paused"
    assert "goes on where it was held" in remote("resume", "last").stdout
    assert remote("set", run, "entropy_coef=0.002", "--json").json["outcome"] == "accepted"
    assert "actors 1 -> 2" in remote("scale", run, "--actors", 2, "--dry-run").stdout
    assert shared_cli.home.state(run).actors_wanted == 1
    assert "saves a checkpoint" in remote("checkpoint", run).stdout
    assert "limit of 16" in remote.refused("scale", run, "--actors", 99)
    assert "algorithm.gamma" in remote.refused("set", run, "gama=1")
    assert "sits in no seat" in remote.refused("seats", run, "*=script:random")
    assert "stop it first" in remote.refused("runs", "delete", run, "--yes")
    entries = remote("audit", run, "--json").json["entries"]
    assert entries[0]["reason"] == "from afar" and entries[0]["origin"] == "network"
    assert [e["kind"] for e in entries[:3]] == ["create_run", "start_run", "pause_run"]
    assert "pause_run" in remote("audit").stdout


@pytest.mark.soak
def test_runs_are_listed_and_shown_as_at_home(remote: Remote, shared_cli: Cli, run: str) -> None:
    there = remote("runs", "list", "--json").json["runs"]
    here = shared_cli("runs", "list", "--json").json["runs"]
    assert [row["run"] for row in there] == [row["run"] for row in here]
    assert here[0].keys() == there[0].keys()
    near, far = (shown("runs", "show", run, "--json").json for shown in (shared_cli, remote))
    assert near.keys() == far.keys() and near["seats"] == far["seats"]
    assert near["directory"] == str(shared_cli.home.run_dir(run))
    assert run in remote("runs").stdout
    shown = remote("runs", "show", run)
    assert f"at {remote.server.url}" in shown.stdout and "balance" in shown.stdout
    assert run in remote("why", run).stdout
    assert remote("why", run, "--json").json["status"] == "running"


@pytest.mark.soak
def test_an_evaluation_at_a_server_is_told_as_at_home(remote: Remote, run: str) -> None:
    remote("checkpoint", run)
    result = remote("eval", run, "--episodes", 2, "--json").json
    assert result["run"] == run and result["episodes"] == 2 and "greedy" in result
    assert "2 fresh episodes" in remote("eval", run, "--episodes", 2).stdout
    assert "plays CartPole-v1" in remote.refused("match", "pgx:tic_tac_toe", run, "script:random")
    assert "must be a run" in remote.refused("match", "CartPole-v1", "script:a", "script:b")


@pytest.mark.soak
def test_a_server_knows_its_own_by_their_tokens(remote: Remote, run: str) -> None:
    made = remote("tokens", "create", "--scope", "read", "--json").json
    visitor = {"ROOKERY_TOKEN": made["token"]}
    cli, env = remote.cli, {**remote.environment, **visitor}
    assert cli("runs", "--json", env=env).json["runs"]
    assert "operate" in cli.refused("pause", run, env=env)
    assert made["id"] in remote("tokens", "list").stdout
    link = f"{remote.server.url}/#token={remote.server.token}"
    assert cli("why", run, "--server", link, env=env).stdout  # the link's own token goes first
    remote("tokens", "revoke", made["id"])
    refused = cli.refused("runs", env=env)
    assert made["token"] not in refused and "token" in refused


def test_the_server_of_the_home_needs_no_token(shared_cli: Cli, server: Served, run: str) -> None:
    assert run in shared_cli("runs", "list", "--server", server.url).stdout


@pytest.mark.soak
def test_training_at_a_server_is_told_as_training_here(remote: Remote, shared_cli: Cli) -> None:
    there = remote("train", *CARTPOLE, "--steps", 3000, "--json")
    here = shared_cli("train", *CARTPOLE, "--steps", 3000, "--launcher", "inline", "--json")
    assert there.json.keys() == here.json.keys()
    for key in ("status", "seats", "policy"):
        assert there.json[key] == here.json[key]
    assert there.json["reason"] == f"{there.json['env_steps']:,} steps done"
    assert there.json["env_steps"] >= 3000 and there.json["train_s"] < there.json["wall_s"]
    assert f"{there.json['run']}: CartPole-v1 with ppo, 1 x 8 environments" in there.stderr
    limited = remote("train", *CARTPOLE, "--until-return", 500, "--steps", 500, expect=3)
    assert "limited: " in limited.stdout and "rookery resume" in limited.stdout


@pytest.mark.soak
def test_ctrl_c_leaves_the_run_going_and_says_how_to_stop_it(
    remote: Remote, shared_cli: Cli, eventually: Callable[..., Any]
) -> None:
    before = shared_cli.home.states().keys()
    process = remote.start("train", *ENDLESS, "--json")
    try:
        (run,) = eventually(lambda: shared_cli.home.states().keys() - before, "the run")
        assert process.stderr is not None
        while "steps/s" not in (line := process.stderr.readline()):
            assert line, "it ended before its first progress"
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and json.loads(stdout)["status"] == "running"
    assert f"rookery stop {run} --server {remote.server.url}" in stderr
    assert not any(isinstance(m, StopRun) for m in RunLog(shared_cli.home, run).read())
    remote("stop", run)
    remote.cli("stop", run)  # nothing changes
    eventually(lambda: shared_cli.home.state(run).status == "stopped", "the end of the run")
    assert "removed for good" in remote("runs", "delete", run, "--yes").stdout
