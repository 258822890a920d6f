"""ONNX files as players: shapes are checked before they play, masks hold, batches of any size."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rookery.players.onnx import OnnxPlayer
from rookery.spaces import ActionSpace, Categorical, Continuous, Leaf, MultiCategorical, SeatSpec

WEIGHTS = np.array([[1, 0, 5], [0, 2, 0]], np.float32)  # (2 inputs, 3 outputs)


def seat(action: ActionSpace, *leaves: tuple[str, tuple[int, ...]]) -> SeatSpec:
    found = leaves or (("", (2,)),)
    return SeatSpec(tuple(Leaf(path, "box", shape, "float32") for path, shape in found), action)


def save(
    path: Path,
    inputs: dict[str, Sequence[int | str]] | None = None,
    batch: int | str = "N",
    kind: int = TensorProto.FLOAT,
    output: str = "logits",
) -> str:
    """A file that multiplies by WEIGHTS; the sum of its inputs where it has several."""
    inputs = inputs or {"x": (batch, 2)}
    nodes, last = [], ""
    for name in inputs:
        nodes.append(helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT))
        if last:
            nodes.append(helper.make_node("Add", [last, f"{name}_f"], [f"{name}_s"]))
        last = f"{name}_s" if last else f"{name}_f"
    nodes.append(helper.make_node("MatMul", [last, "w"], [output]))
    nodes.append(helper.make_node("Identity", [last], ["value"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, kind, shape) for n, shape in inputs.items()],
        [
            helper.make_tensor_value_info("value", TensorProto.FLOAT, (batch, 2)),
            helper.make_tensor_value_info(output, TensorProto.FLOAT, (batch, 3)),
        ],
        [onnx.numpy_helper.from_array(WEIGHTS, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return str(path)


def act(player: Any, observation: Any, mask: Any = None) -> Any:
    leaves = observation if isinstance(observation, dict) else {"": observation}
    return player.act({}, leaves, mask, {}, np.random.default_rng(0))


@pytest.mark.parametrize("batch", ["N", 1])
def test_greedy_takes_the_likeliest_legal_action(tmp_path: Path, batch: int | str) -> None:
    player = OnnxPlayer(save(tmp_path / "a.onnx", batch=batch), seat(Categorical(3)), greedy=True)
    seen = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
    mask = np.array([[1, 1, 1], [1, 1, 1], [1, 1, 0]], bool)
    decision = act(player, seen, mask)
    assert player.kind == "onnx"
    assert decision.action.tolist() == [2, 1, 0]
    assert decision.log_prob.tolist() == [0, 0, 0]


def test_sampling_follows_the_logits(tmp_path: Path) -> None:
    player = OnnxPlayer(save(tmp_path / "a.onnx"), seat(Categorical(3)))
    decision = act(player, np.tile(np.float32([1, 0]), (4000, 1)), np.tile([1, 1, 0], (4000, 1)))
    share = np.exp([1, 0]) / np.exp([1, 0]).sum()
    assert np.allclose(np.bincount(decision.action, minlength=3) / 4000, [*share, 0], atol=0.03)
    assert np.allclose(decision.log_prob, np.log(share)[decision.action], atol=1e-5)


def test_several_choices_are_read_side_by_side(tmp_path: Path) -> None:
    space = MultiCategorical((1, 2))
    player = OnnxPlayer(save(tmp_path / "a.onnx"), seat(space), greedy=True)
    assert act(player, np.float32([[1, 0], [0, 1]])).action.tolist() == [[0, 1], [0, 0]]


def test_real_actions_are_kept_within_their_bounds(tmp_path: Path) -> None:
    space = Continuous((3, 1), (-2.0, -2.0, -2.0), (2.0, 2.0, 2.0))
    player = OnnxPlayer(save(tmp_path / "a.onnx", output="action"), seat(space))
    decision = act(player, np.float32([[1, 0]]))
    assert decision.to_environment.tolist() == [[[1], [0], [2]]]
    assert np.isnan(decision.log_prob).all()


def test_leaves_are_found_by_name_and_cast(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", {"ear": ("N", 2), "eye": ("N", 2)}, kind=TensorProto.INT64)
    player = OnnxPlayer(path, seat(Categorical(3), ("eye", (2,)), ("ear", (2,))), greedy=True)
    leaves = {"eye": np.array([[0, 3]], np.uint8), "ear": np.array([[1, 0]], np.float32)}
    assert act(player, leaves).action.tolist() == [1]  # logits 1, 6, 5


@pytest.mark.parametrize(
    ("inputs", "batch", "shape", "actions", "says"),
    [
        (None, "N", (3,), 3, "input 'x' is (N, 2), but the observation is (batch, 3)"),
        (None, "N", (2, 1), 3, "input 'x' is (N, 2), but the observation is (batch, 2, 1)"),
        (None, "N", (2,), 4, "output 'logits' is (N, 3), but the actions need (batch, 4)"),
        (None, 8, (2,), 3, "for batches of 8 only"),
        ({"x": ("N", 2), "y": ("N", 2)}, "N", (2,), 3, "has the inputs x, y"),
    ],
)
def test_shapes_that_do_not_fit_are_named(
    tmp_path: Path,
    inputs: Any,
    batch: Any,
    shape: tuple[int, ...],
    actions: int,
    says: str,
    refused: Callable[..., str],
) -> None:
    path = save(tmp_path / "a.onnx", inputs, batch)
    assert says in refused(OnnxPlayer, path, seat(Categorical(actions), ("", shape)))


def test_what_is_no_model_is_refused_in_one_line(
    tmp_path: Path, made: Callable[..., Any], refused: Callable[..., str]
) -> None:
    nothing, broken = tmp_path / "none.onnx", tmp_path / "broken.onnx"
    broken.write_bytes(b"\x00\x01 not a model")
    assert "there is no such file" in refused(made, f"onnx:{nothing}", seat(Categorical(3)))
    assert "can't read it" in refused(made, f"onnx:{broken}", seat(Categorical(3)))
    assert "true or false" in refused(made, f"onnx:{broken}?greedy=1", seat(Categorical(3)))


def test_without_onnxruntime_the_extra_is_named(
    tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    line = refused(OnnxPlayer, save(tmp_path / "a.onnx"), seat(Categorical(3)))
    assert "rookery[onnx]" in line
