"""A replica of a served policy: reads observations, decides for all that wait, answers.

Imports Ray: only `serve_app` imports it, and the processes that Ray Serve starts.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

from rookery.algorithms.networks import Network
from rookery.config.models import NetworkConfig
from rookery.errors import InputError
from rookery.messages.weights import decode_weights
from rookery.players.policy import PolicyPlayer
from rookery.ray.asked import Asked, read
from rookery.spaces import Categorical, MultiCategorical, SeatSpec


class PolicyReplica:
    """Decides with fixed weights; what comes in at the same time is one matrix."""

    def __init__(
        self,
        weights: bytes,
        spec: bytes,
        network: str,
        greedy: bool,
        max_batch: int,
        batch_wait_s: float,
    ) -> None:
        message = decode_weights(weights)
        self._version, self._arrays = message.header.version.number, message.arrays
        seat = msgspec.msgpack.decode(spec, type=SeatSpec)
        self._network = Network(seat, NetworkConfig.model_validate_json(network))
        self._player = PolicyPlayer(self._network, greedy=greedy)
        self._rng = np.random.default_rng()  # replicas draw apart
        self._decide.set_max_batch_size(max_batch)
        self._decide.set_batch_wait_timeout_s(batch_wait_s)

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            body = msgspec.json.decode(await request.body())
        except msgspec.DecodeError as error:
            return JSONResponse({"error": f"the body is not JSON: {error}"}, 400)
        try:
            asked = read(body, self._network.spec, self._network.distribution.parameters)
        except InputError as error:
            return JSONResponse({"error": str(error)}, 422)
        actions = await self._decide(asked)
        found = {"action": actions[0]} if asked.single else {"actions": actions}
        return JSONResponse({**found, "version": self._version})

    @serve.batch  # type: ignore[untyped-decorator]
    async def _decide(self, waiting: list[Asked]) -> list[list[Any]]:
        return self.decide(waiting)

    def decide(self, waiting: list[Asked]) -> list[list[Any]]:
        """The actions of each request that waits, of all in one pass."""
        first = waiting[0]
        leaves = {
            leaf: np.concatenate([each.observation[leaf] for each in waiting])
            for leaf in first.observation
        }
        masks = [each.mask for each in waiting if each.mask is not None]
        mask = np.concatenate(masks) if masks else None
        decision = self._player.act(self._arrays, leaves, mask, {}, self._rng)
        actions = self._numbers(decision.to_environment)
        ends = np.cumsum([each.rows for each in waiting]).tolist()
        return [actions[end - each.rows : end] for each, end in zip(waiting, ends, strict=True)]

    def _numbers(self, actions: np.ndarray) -> list[Any]:
        """As the environment counts them."""
        space = self._network.spec.action
        if isinstance(space, Categorical):
            actions = actions + space.start
        if isinstance(space, MultiCategorical) and space.starts:
            actions = actions + np.asarray(space.starts)
        numbers: list[Any] = actions.tolist()
        return numbers
