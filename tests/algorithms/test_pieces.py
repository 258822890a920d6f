"""Large observations: an update takes memory for a piece of them at a time, and says the same."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rookery.algorithms import objective
from rookery.algorithms.batch import blank
from rookery.algorithms.networks import Network
from rookery.algorithms.objective import heads, values
from rookery.config.models import NetworkConfig
from rookery.learner.deliveries import Delivery
from rookery.learner.loop import Updated
from rookery.learner.report import Report, Window
from rookery.messages.fragment import Fragment, FragmentHeader
from rookery.messages.ids import WeightsVersion
from rookery.spaces import Categorical, Leaf, SeatSpec

ROWS, LANES, SIZE = 7, 16, 12


def network() -> Network:
    leaf = Leaf("", "image", (SIZE, SIZE, 4), "uint8", low=0.0, high=255.0)
    return Network(SeatSpec((leaf,), Categorical(4)), NetworkConfig(hidden=(8,), channels=(8,)))


def compiled(of: Any) -> Any:
    """What the heads say of some frames, and the gradient of it; made anew for each PIECE."""
    net = network()
    params, stats = net.init(np.random.default_rng(0)), net.init_stats()
    frames = np.random.default_rng(0).integers(0, 256, (ROWS + 1, LANES, SIZE, SIZE, 4), np.uint8)

    def loss(params: Any, frames: Any) -> Any:
        said = of(net, params, stats, {"": frames})
        return sum(jnp.square(x).mean() for x in jax.tree.leaves(said)), said

    made = jax.jit(jax.grad(loss, has_aux=True)).lower(params, frames).compile()
    analysis: Any = made.memory_analysis()
    return analysis.temp_size_in_bytes, jax.device_get(made(params, frames))


@pytest.mark.parametrize("of", [values, heads])
def test_large_observations_are_encoded_a_piece_at_a_time(
    of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less memory, and to the same effect."""
    bytes_at_once, at_once = compiled(of)
    monkeypatch.setattr(objective, "PIECE", 5 * SIZE * SIZE * 4)  # 4 rows: it divides them
    bytes_in_pieces, in_pieces = compiled(of)
    assert bytes_in_pieces < bytes_at_once / 4
    close = partial(np.testing.assert_allclose, rtol=2e-4, atol=1e-6)
    jax.tree.map(close, in_pieces, at_once)


def test_a_report_lets_go_of_the_experience_that_it_counted() -> None:
    header = FragmentHeader(
        run="r",
        policy="main",
        actor="0.1",
        sequence=0,
        first_step=0,
        steps=0,
        version=WeightsVersion(1, 0),
        seats=("s",),
        players=("policy",),
    )
    steps = blank(network(), 2, 1)
    frame = weakref.ref(steps.observation[""])
    report = Report("r", {"main": Window()}, 1, 0.0)
    report.note(Updated(1, [Delivery((b"",), (Fragment(header, steps),))], [0], {"main": {}}))
    del steps
    assert frame() is None
