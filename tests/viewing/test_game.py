"""Games that are played for someone who watches: true runs, true weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

from rookery.checkpoints.checkpoint import checkpoint_name
from rookery.checkpoints.policies import newest_of
from rookery.messages import CRITIC_KEY, MODEL_UPDATES
from rookery.messages.weights import decode_weights
from rookery.players.kinds import KINDS
from rookery.viewing import ChoiceHead, Frame, Watch
from rookery.viewing.game import Viewing
from rookery.viewing.viewer import Viewer
from tests.conftest import Cli
from tests.players.toy import made


@pytest.fixture(scope="module")
def run(shared_cli: Cli) -> str:
    done = shared_cli(
        *("train", "CartPole-v1", "--steps", 3000, "--launcher", "inline", "--json"),
        *("--set", "actors.envs_per_actor=4"),
    )
    return str(done.json["run"])


@pytest.fixture(scope="module")
def league(shared_cli: Cli) -> str:
    done = shared_cli(
        *("train", "pgx:tic_tac_toe", "--steps", 4000, "--launcher", "inline", "--json"),
        *("--set", "actors.envs_per_actor=16", "--set", "actors.rollout_steps=32"),
        *("--set", "league.snapshot_every_steps=1000"),
        timeout=240,
    )
    return str(done.json["run"])


@contextmanager
def viewing(cli: Cli, run: str, **asked: Any) -> Iterator[Viewing]:
    made = Viewing(cli.home, Watch(run=run, **asked))
    try:
        yield made
    finally:
        made.close()


def episode(viewing: Viewing) -> list[Frame]:
    frames = [viewing.next()]
    while not frames[-1].over:
        frames.append(viewing.next())
    return frames


def test_an_episode_is_played_to_its_end_and_another_begins(shared_cli: Cli, run: str) -> None:
    with viewing(shared_cli, run) as game:
        frames = episode(game)
        assert [frame.step for frame in frames] == list(range(len(frames)))
        assert {frame.episode for frame in frames} == {1}
        seats = [frame.seats["player_0"] for frame in frames]
        assert [seat.returned for seat in seats] == list(range(len(frames)))  # 1 for each step
        assert seats[0].reward == 0 and all(seat.reward == 1 for seat in seats[1:])
        for frame, seat in zip(frames[:-1], seats, strict=False):
            (head,) = seat.heads
            assert isinstance(head, ChoiceHead) and seat.turn and frame.picture and not frame.ended
            assert seat.action == max(head.options, key=lambda option: option.p).action  # greedy
            assert seat.value is not None
        last = seats[-1]
        assert frames[-1].ended in ("terminated", "truncated") and frames[-1].picture
        assert not last.turn and last.action is None and not last.heads
        after = game.next()
        assert (after.episode, after.step, after.over) == (2, 0, False)


def test_the_newest_weights_are_the_checkpoints_after_the_end(shared_cli: Cli, run: str) -> None:
    manifest = newest_of(shared_cli.home.files(run)).manifest
    with viewing(shared_cli, run) as game:
        frame = game.next()
        assert frame.weights == f"main@{manifest.number}"
        assert frame.env_steps == manifest.ledger.trained
        assert game.watching.choices[:2] == ["newest", checkpoint_name(manifest.version)]


def test_the_learner_publishes_its_critic(shared_cli: Cli, run: str) -> None:
    bus = shared_cli.home.read_run_bus(shared_cli.home.state(run))
    assert bus is not None
    record = bus.newest(MODEL_UPDATES, f"{CRITIC_KEY}main")
    assert record is not None and record.headers["kind"] == "critic"
    critic = decode_weights(record.payload)
    assert {"v.out.w", "ret.var"} <= critic.arrays.keys()
    assert not any(name.startswith("pi.") for name in critic.arrays)
    bus.close()


def test_a_seed_repeats_an_episode_and_none_does_not(shared_cli: Cli, run: str) -> None:
    def pictures(seed: int | None) -> list[str | None]:
        with viewing(shared_cli, run, seed=seed, sampled=True) as game:
            return [game.next().picture for _ in range(8)]

    assert pictures(5) == pictures(5) != pictures(6)
    assert pictures(None) != pictures(None)


def test_a_restart_begins_anew(shared_cli: Cli, run: str) -> None:
    with viewing(shared_cli, run) as game:
        game.next(), game.next()
        game.restart()
        frame = game.next()
        assert (frame.episode, frame.step, frame.seats["player_0"].returned) == (2, 0, 0.0)


def test_players_meet_in_the_seats_that_they_are_given(shared_cli: Cli, league: str) -> None:
    with viewing(shared_cli, league) as game:
        choices = game.watching.choices
        assert game.watching.fps == 2.0
    snapshot = next(choice for choice in choices if choice.startswith("main@"))
    players = {"player_0": snapshot, "player_1": "script:perfect"}
    with viewing(shared_cli, league, players=players) as game:
        frames = episode(game)
    moves = []
    for frame in frames[:-1]:
        (acting,) = [seat for seat, shown in frame.seats.items() if shown.turn]
        assert acting == f"player_{frame.step % 2}"
        shown = frame.seats[acting]
        assert shown.player == players[acting]
        assert bool(shown.heads) == (acting == "player_0")  # a rule has no probabilities
        assert shown.value is None  # a snapshot has no value network
        moves.append(shown.action)
    assert len(set(moves)) == len(moves)  # no square twice
    results = [shown.returned for shown in frames[-1].seats.values()]
    assert results in ([-1.0, 1.0], [0.0, 0.0])  # nobody wins against perfect play
    assert frames[0].picture and frames[0].picture.startswith("data:image/svg+xml")


def test_a_deferred_player_is_asked_and_told_of_each_game(
    shared_cli: Cli, league: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "asked", "tests.players.toy:ASKED")
    with viewing(shared_cli, league, players={"player_1": "asked:me"}) as game:
        frames = episode(game)
        player = made.pop()
        (over,) = player.told
        assert (over.game, over.seats, over.how) == (
            player.asked[0].game,
            ("player_1",),
            "terminated",
        )
        assert over.totals == {seat: shown.returned for seat, shown in frames[-1].seats.items()}
        assert [question.move for question in player.asked] == list(range(len(player.asked)))
        assert player.asked[0].since[0].name.split()[0] in ("top", "middle", "bottom")
        for _ in range(3):
            game.next()
        game.restart()
        for _ in range(3):
            game.next()
    assert [over.how for over in player.told] == ["terminated", "restarted", "closed"]
    assert len({over.game for over in player.told}) == 3 and not made


def test_own_weights_of_a_version_or_a_checkpoint(shared_cli: Cli, league: str) -> None:
    with viewing(shared_cli, league) as game:
        newest, *others = game.watching.choices
    assert newest == "newest" and len(others) >= 2
    shown = []
    for weights in others:
        with viewing(shared_cli, league, weights=weights) as game:
            frame = game.next()
            shown.append(frame.weights)
            assert (frame.seats["player_0"].value is None) == ("@" in weights)
    assert len(set(shown)) > 1
    assert next(name for name in others if "@" in name) in shown


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"weights": "000009-0000000001"}, "unknown checkpoint"),
        ({"weights": "main@987654"}, "unknown version"),
        ({"weights": "other@1"}, "of another run"),
        ({"players": {"player_7": "script:random"}}, "unknown seat 'player_7'"),
        ({"players": {"player_0": "league:main"}}, "name one snapshot"),
        ({"players": {"player_0": "engine:crafty"}}, "allow.binaries"),
        ({"players": {"player_0": "script:os:system"}}, "allow.code"),
        ({"players": {"player_0": "script:nobody"}}, "nobody"),
    ],
)
def test_what_cannot_be_shown_is_told_in_one_line(
    shared_cli: Cli, run: str, asked: dict[str, Any], said: str
) -> None:
    viewer = Viewer(shared_cli.home)
    reply = msgspec.to_builtins(viewer.reply(Watch(run=run, **asked)))
    assert reply["type"] == "refused" and said in reply["detail"] and "\n" not in reply["detail"]


def test_a_run_without_weights_says_what_to_do(shared_cli: Cli) -> None:
    from rookery.viewing import Next

    viewer = Viewer(shared_cli.home)
    unknown = msgspec.to_builtins(viewer.reply(Watch(run="nobody-knows")))
    assert unknown["type"] == "refused" and "nobody-knows" in unknown["detail"]
    assert msgspec.to_builtins(viewer.reply(Next()))["type"] == "refused"


def test_frames_are_plain_json(shared_cli: Cli, run: str) -> None:
    with viewing(shared_cli, run) as game:
        frame = game.next()
    read = msgspec.json.decode(msgspec.json.encode(frame))
    assert read["type"] == "frame" and read["seats"]["player_0"]["return"] == 0
    assert {"kind", "options"} <= read["seats"]["player_0"]["heads"][0].keys()
    assert np.isfinite(read["seats"]["player_0"]["value"])
