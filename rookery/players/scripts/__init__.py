"""Players that follow a rule: of any game, or of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rookery.players import Decision


class Rule:
    """A player that takes no weights and has no memory: what it sees is all that it goes by."""

    kind: str = "script"

    def initial_state(self, lanes: int) -> dict[str, Any]:
        return {}

    def act(
        self,
        params: Mapping[str, Any],
        observation: dict[str, Any],
        mask: Any,
        state: dict[str, Any],
        key: Any,
    ) -> Decision:
        return self.decide(observation, mask, key)

    def decide(self, observation: dict[str, Any], mask: Any, key: Any) -> Decision:
        """For every lane, with an empty state."""
        raise NotImplementedError
