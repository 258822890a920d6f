"""`onnx:PATH`: a network exported from anywhere, as long as its file has our shapes.

Inputs are the leaves of an observation, batch first: any one input for a lone leaf, else inputs
that are named as the leaves. The output is one row per lane: logits for discrete actions (side by
side where there are several), or the actions themselves, in the environment's units, for real ones.
It is the output named `logits` or `action`, or else the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rookery.algorithms.distributions import distribution_for
from rookery.envs.failures import first_line
from rookery.errors import InputError, MissingExtra
from rookery.players import Decision
from rookery.players.actions import bounded
from rookery.players.choice import gumbel
from rookery.players.kinds import PlayerKind, Wanted
from rookery.players.member import Member
from rookery.players.options import flag
from rookery.players.scripts import Rule
from rookery.spaces import Continuous, SeatSpec

_OUTPUTS = ("logits", "action")
_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


class OnnxPlayer(Rule):
    """Acts with a file's own weights."""

    kind = "onnx"

    def __init__(self, path: str, seat: SeatSpec, greedy: bool = False) -> None:
        self._seat, self._greedy = seat, greedy
        self._session = _open(path)
        self._act = distribution_for(seat.action, "clipped")
        self._inputs = _match_inputs(path, self._session.get_inputs(), seat)
        self._output = _match_output(path, self._session.get_outputs(), self._act.parameters)
        batches = {node.shape[0] for node in (*self._inputs.values(), self._output)}
        self._one_by_one = 1 in batches

    def decide(self, observation: dict[str, Any], mask: Any, key: Any) -> Decision:
        rows = self._rows(observation)
        if isinstance(self._seat.action, Continuous):
            unknown = np.full(len(rows), np.nan, np.float32)
            return Decision(rows, bounded(self._seat.action, rows), unknown, {})
        if self._greedy:
            action = self._act.mode(np, rows, mask)
            log_prob = np.zeros(len(rows), np.float32)  # it could not have done otherwise
        else:
            noise = gumbel(np, key, rows.shape)
            action, log_prob = self._act.sample(np, rows, None, mask, noise)
        return Decision(action, self._act.to_environment(np, action), log_prob, {})

    def _rows(self, observation: dict[str, Any]) -> np.ndarray:
        """(lanes, parameters): what the network says."""
        feeds: dict[str, np.ndarray] = {
            node.name: np.asarray(observation[path]).astype(_DTYPES[node.type], copy=False)
            for path, node in self._inputs.items()
        }
        if not self._one_by_one:
            return self._run(feeds)
        lanes = len(next(iter(feeds.values())))
        rows = [self._run({k: v[i : i + 1] for k, v in feeds.items()}) for i in range(lanes)]
        return np.concatenate(rows)

    def _run(self, feeds: dict[str, np.ndarray]) -> np.ndarray:
        (found,) = self._session.run([self._output.name], feeds)
        return np.asarray(found, np.float32)


def _open(path: str) -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingExtra(f"player onnx:{path}", "onnx") from error
    if not Path(path).is_file():
        raise InputError(f"player onnx:{path}: there is no such file")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # actors share their cores
    options.log_severity_level = 4  # what goes wrong is raised as well
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common root but this
        raise InputError(
            f"player onnx:{path}: onnxruntime can't read it: {first_line(error)}"
        ) from error


def _match_inputs(path: str, nodes: list[Any], seat: SeatSpec) -> dict[str, Any]:
    """Leaf path -> the input that takes it."""
    leaves = {leaf.path: leaf.shape for leaf in seat.observation}
    if len(leaves) == len(nodes) == 1:
        found = dict(zip(leaves, nodes, strict=True))
    else:
        found = {node.name: node for node in nodes}
        if found.keys() != leaves.keys():
            raise InputError(
                f"player onnx:{path} has the inputs {', '.join(sorted(found))}, but the "
                f"observation has {', '.join(sorted(map(repr, leaves)))}: name inputs as leaves"
            )
    for leaf, node in found.items():
        _check(path, f"input {node.name!r}", node, leaves[leaf], "the observation is")
        if node.type not in _DTYPES:
            raise InputError(
                f"player onnx:{path}: its input {node.name!r} is a {node.type}, "
                f"which is none of {', '.join(_DTYPES)}"
            )
    return found


def _match_output(path: str, nodes: list[Any], parameters: int) -> Any:
    node = next((node for name in _OUTPUTS for node in nodes if node.name == name), nodes[0])
    _check(path, f"output {node.name!r}", node, (parameters,), "the actions need")
    return node


def _check(path: str, what: str, node: Any, shape: tuple[int, ...], needs: str) -> None:
    """A symbolic size (text or None) fits every number; the first axis is the batch."""
    sizes = tuple(node.shape or ())
    fits = len(sizes) == len(shape) + 1 and all(
        not isinstance(size, int) or size == wanted
        for size, wanted in zip(sizes[1:], shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"player onnx:{path}: its {what} is {_sizes(sizes)}, "
            f"but {needs} {_sizes(('batch', *shape))}"
        )
    if isinstance(sizes[0], int) and sizes[0] != 1:
        raise InputError(
            f"player onnx:{path}: its {what} is {_sizes(sizes)}, for batches of {sizes[0]} only: "
            "export it with a dynamic batch axis"
        )


def _sizes(shape: tuple[Any, ...]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"


def _make(wanted: Wanted) -> Member:
    return wanted.member(OnnxPlayer(wanted.name.name, wanted.spec, wanted.options["greedy"]))


ONNX = PlayerKind(
    "onnx:exported.onnx?greedy=true",
    "a network from a file, exported from anywhere",
    _make,
    (flag("greedy", "false", "the likeliest action instead of a sampled one"),),
    form="write onnx:PATH",
    takes=lambda path: bool(path) and path.isprintable(),
    encoded=True,
    outside="files",
)
