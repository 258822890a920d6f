"""Every mistake about seats and players is one line that says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rookery
from rookery.errors import InputError

if TYPE_CHECKING:
    from tests.conftest import Cli

TTT = ("train", "pgx:tic_tac_toe", "--steps", 1000)
CONNECT = ("train", "pgx:connect_four", "--steps", 1000)
TAG = ("train", "pettingzoo:simple_tag_v3", "--steps", 1000)


def config(cli: Cli, **values: Any) -> tuple[str, str]:
    path = cli.home.path.parent / "seats.yaml"
    path.write_text(json.dumps(values))
    return "--config", str(path)


def test_a_seat_that_does_not_exist(cli: Cli) -> None:
    said = cli.refused(*TTT, "--seats", "player_0=main", "player_3=main")
    assert "unknown seat 'player_3'" in said and "did you mean player_" in said


def test_a_seat_with_no_player(cli: Cli) -> None:
    said = cli.refused(*TTT, "--seats", "player_0=main")
    assert "seat 'player_1' has no player" in said


def test_an_unknown_policy_in_a_seat(cli: Cli) -> None:
    said = cli.refused(*TTT, "--seats", "player_0=main", "player_1=mian")
    assert "unknown policy 'mian'; did you mean main?" in said


def test_a_policy_that_nobody_trains_and_nobody_plays(cli: Cli) -> None:
    extra = config(cli, policies={"main": {}, "idle": {}}, train=["main"], seats={"*": "main"})
    assert "policy 'idle' neither learns nor plays" in cli.refused(*TTT, *extra)


def test_a_policy_that_learns_but_never_plays(cli: Cli) -> None:
    extra = config(cli, policies={"main": {}, "idle": {}}, seats={"*": "main"})
    assert "policy 'idle' learns but sits in no seat" in cli.refused(*TTT, *extra)


def test_train_names_an_unknown_policy(cli: Cli) -> None:
    said = cli.refused(*TTT, *config(cli, policies={"main": {}}, train=["mani"]))
    assert "unknown policy 'mani'; did you mean main?" in said


@pytest.mark.parametrize("weights", [[0, 0], [0.0]])
def test_a_draw_with_no_weight(cli: Cli, weights: list[float]) -> None:
    draw = [{"player": "main", "weight": weight} for weight in weights]
    said = cli.refused(*TTT, *config(cli, seats={"*": {"draw": draw}}))
    assert "a draw needs at least one entry with a weight above 0" in said


def test_a_draw_whose_entry_has_no_weight(cli: Cli) -> None:
    said = cli.refused(*TTT, *config(cli, seats={"*": {"draw": [{"player": "main"}]}}))
    assert "weight" in said


def test_an_unknown_kind_or_script_names_the_nearest(cli: Cli) -> None:
    said = cli.refused(*TTT, "--seats", "player_0=main", "player_1=scirpt:random")
    assert "script" in said
    said = cli.refused(*TTT, "--seats", "player_0=main", "player_1=script:randon")
    assert "did you mean" in said and "random" in said


def test_a_player_that_cannot_play_this_space(cli: Cli) -> None:
    said = cli.refused(*CONNECT, "--seats", "player_0=main", "player_1=script:perfect")
    assert "script:perfect plays tic-tac-toe" in said
    said = cli.refused(*TTT, "--seats", "player_0=main", "player_1=engine:stockfish")
    assert "chess" in said


def test_an_engine_that_is_not_installed(cli: Cli) -> None:
    seats = ("--seats", "player_0=main", "player_1=engine:deepfritz")
    said = cli.refused("train", "pettingzoo:chess_v6", "--steps", 1000, *seats)
    assert "deepfritz" in said


def test_an_onnx_file_that_is_missing_or_does_not_fit(cli: Cli) -> None:
    seats = ("--seats", "player_0=main", "player_1=onnx:nowhere.onnx")
    assert "nowhere.onnx" in cli.refused(*TTT, *seats)
    path = cli.home.path.parent / "wide.onnx"
    write_onnx(path, inputs=5, actions=9)
    said = cli.refused(*TTT, "--seats", "player_0=main", f"player_1=onnx:{path}")
    assert "wide.onnx" in said and "5" in said and "3" in said


def write_onnx(path: Path, inputs: int, actions: int) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.zeros((inputs, actions), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])],
        "policy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", inputs])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", actions])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, str(path))


MAPS = """
def raises(seat, episode):
    raise ValueError("no idea")

def nonsense(seat, episode):
    return 7

def fine(seat, episode):
    return "main" if (seat == "player_0") == (episode % 2 == 0) else "script:random"
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("maps:raises", "seat_map raised ValueError for seat 'player_0', episode 0: no idea"),
        ("maps:nonsense", "seat_map gave 7 for seat 'player_0', episode 0"),
        ("maps:fien", "did you mean fine?"),
        ("nowhere:fine", "nowhere"),
        ("fine", "not of the form module:function"),
    ],
)
def test_a_mapping_function_that_is_wrong(cli: Cli, tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "maps.py").write_text(MAPS)
    assert says in cli.refused(*TTT, "--set", f"seat_map={name}", cwd=tmp_path)


def test_a_mapping_function_by_name_seats_players_in_other_processes(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "maps.py").write_text(MAPS)
    small = ("--envs-per-actor", 8, "--set", "actors.rollout_steps=32")
    done = cli(*TTT, "--set", "seat_map=maps:fine", *small, "--json", cwd=tmp_path).json
    assert done["status"] == "finished" and set(done["seat_returns"]) == {"player_0", "player_1"}


def test_a_lambda_needs_the_inline_launcher(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pass launcher='inline', or name it as 'module:function'"):
        rookery.train("pgx:tic_tac_toe", seat_map=lambda seat, episode: "main", home=tmp_path)


def test_spaces_that_differ_between_seats_of_one_policy(cli: Cli) -> None:
    said = cli.refused(*TAG)
    assert "policy 'main' cannot play both 'adversary_0' and 'agent_0': their spaces differ" in said


def test_policies_of_one_encoder_whose_spaces_differ(cli: Cli) -> None:
    encoder = {"network": {"encoder": "eye"}}
    seats = {"adversary_*": "hunter", "agent_*": "prey"}
    extra = config(cli, policies={"hunter": encoder, "prey": encoder}, seats=seats)
    said = cli.refused(*TAG, *extra)
    assert "share the encoder 'eye'" in said


def test_a_rollout_too_short_for_the_seats(cli: Cli) -> None:
    said = cli.refused(*TTT, "--set", "actors.rollout_steps=4")
    assert "actors.rollout_steps=4 is too few for 2 seats" in said


def test_an_exploiter_without_a_target(cli: Cli) -> None:
    extra = config(cli, policies={"main": {}, "hunter": {"role": "exploiter"}})
    assert "role=exploiter and target=POLICY go together" in cli.refused(*TTT, *extra)
