"""Every mistake about seats and players is one line that says what to do."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rookery
from rookery.config.reading import build
from rookery.control.create import create_run
from rookery.control.home import Home
from rookery.errors import InputError

if TYPE_CHECKING:
    from tests.conftest import Cli

TTT = "pettingzoo:tictactoe_v3"  # seats player_1 and player_2
CONNECT = "pettingzoo:connect_four_v3"
TAG = "pettingzoo:simple_tag_v3"


def refused(environment: str, **values: Any) -> str:
    """The one line with which a run is refused before it exists."""
    with tempfile.TemporaryDirectory() as home:
        with pytest.raises(InputError) as caught:
            create_run(Home(Path(home)), build({"environment": {"id": environment}, **values}))
        assert Home(Path(home)).states() == {}
    said = str(caught.value)
    assert "\n" not in said
    return said


def seats(first: Any, second: Any) -> dict[str, Any]:
    return {"player_1": first, "player_2": second}


def test_the_command_says_it_in_one_line_and_exits_with_2(cli: Cli) -> None:
    said = cli.refused("train", TTT, "--seats", "player_1=main", "player_3=main")
    assert "unknown seat 'player_3'" in said and "did you mean player_" in said
    said = cli.refused("train", TTT, "--seats", "player_1")
    assert "not of the form seat=player" in said


def test_a_seat_that_does_not_exist() -> None:
    said = refused(TTT, seats={"player_1": "main", "player_3": "main"})
    assert "unknown seat 'player_3'" in said and "did you mean player_" in said


def test_a_seat_with_no_player() -> None:
    assert "seat 'player_2' has no player" in refused(TTT, seats={"player_1": "main"})


def test_an_unknown_policy_in_a_seat() -> None:
    said = refused(TTT, seats=seats("main", "mian"))
    assert "unknown policy 'mian'; did you mean main?" in said


def test_a_policy_that_nobody_trains_and_nobody_plays() -> None:
    policies = {"main": {}, "idle": {}}
    said = refused(TTT, policies=policies, train=["main"], seats={"*": "main"})
    assert "policy 'idle' neither learns nor plays" in said


def test_a_policy_that_learns_but_never_plays() -> None:
    said = refused(TTT, policies={"main": {}, "idle": {}}, seats={"*": "main"})
    assert "policy 'idle' learns but sits in no seat" in said


def test_train_names_an_unknown_policy() -> None:
    said = refused(TTT, policies={"main": {}}, train=["mani"])
    assert "unknown policy 'mani'; did you mean main?" in said


@pytest.mark.parametrize("weights", [[0, 0], [0.0]])
def test_a_draw_with_no_weight(weights: list[float]) -> None:
    draw = [{"player": "main", "weight": weight} for weight in weights]
    said = refused(TTT, seats={"*": {"draw": draw}})
    assert "a draw needs at least one entry with a weight above 0" in said


def test_a_draw_whose_entry_has_no_weight() -> None:
    assert "weight" in refused(TTT, seats={"*": {"draw": [{"player": "main"}]}})


def test_an_unknown_kind_or_script_names_the_nearest() -> None:
    said = refused(TTT, seats=seats("main", "scirpt:random"))
    assert "did you mean script" in said
    said = refused(TTT, seats=seats("main", "script:randon"))
    assert "did you mean" in said and "random" in said


def test_a_player_that_cannot_play_this_space() -> None:
    said = refused(CONNECT, seats={"player_0": "main", "player_1": "script:perfect"})
    assert "script:perfect plays tic-tac-toe" in said
    assert "chess" in refused(TTT, seats=seats("main", "engine:stockfish"))


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("rookery.players.engine._GAMES", "/nowhere")
    taken = {"player_0": "main", "player_1": "engine:stockfish"}
    said = refused("pettingzoo:chess_v6", seats=taken)
    assert "stockfish is not installed" in said


def test_an_onnx_file_that_is_missing_or_does_not_fit(tmp_path: Path) -> None:
    assert "nowhere.onnx" in refused(TTT, seats=seats("main", "onnx:nowhere.onnx"))
    path = tmp_path / "wide.onnx"
    write_onnx(path, inputs=5, actions=9)
    said = refused(TTT, seats=seats("main", f"onnx:{path}"))
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
    return "main" if (seat == "player_1") == (episode % 2 == 0) else "script:random"
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bad_maps:raises", "seat_map raised ValueError for seat 'player_1', episode 0: no idea"),
        ("bad_maps:nonsense", "seat_map gave 7 for seat 'player_1', episode 0"),
        ("bad_maps:fien", "did you mean fine?"),
        ("nowhere:fine", "nowhere"),
        ("fine", "not of the form module:function"),
    ],
)
def test_a_mapping_function_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "bad_maps.py").write_text(MAPS)
    monkeypatch.syspath_prepend(tmp_path)
    assert says in refused(TTT, seat_map=name)
    sys.modules.pop("bad_maps", None)


def test_a_mapping_function_by_name_seats_players_in_other_processes(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "maps.py").write_text(MAPS)
    small = ("--envs-per-actor", 8, "--set", "actors.rollout_steps=32")
    command = ("train", TTT, "--steps", 1000, "--set", "seat_map=maps:fine")
    done = cli(*command, *small, "--json", cwd=tmp_path).json
    assert done["status"] == "finished" and set(done["seat_returns"]) == {"player_1", "player_2"}


def test_a_lambda_needs_the_inline_launcher(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pass launcher='inline', or name it as 'module:function'"):
        rookery.train(TTT, seat_map=lambda seat, episode: "main", home=tmp_path)


def test_spaces_that_differ_between_seats_of_one_policy() -> None:
    said = refused(TAG)
    assert "policy 'main' cannot play both 'adversary_0' and 'agent_0': their spaces differ" in said


def test_policies_of_one_encoder_whose_spaces_differ() -> None:
    encoder = {"network": {"encoder": "eye"}}
    policies = {"hunter": encoder, "prey": {**encoder}}
    said = refused(TAG, policies=policies, seats={"adversary_*": "hunter", "agent_*": "prey"})
    assert "share the encoder 'eye' but theirs differ in shape" in said


def test_a_rollout_too_short_for_the_seats() -> None:
    said = refused(TTT, actors={"rollout_steps": 4})
    assert "actors.rollout_steps=4 is too few for 2 seats" in said


def test_an_exploiter_without_a_target() -> None:
    said = refused(TTT, policies={"main": {}, "hunter": {"role": "exploiter"}})
    assert "role=exploiter and target=POLICY go together" in said
