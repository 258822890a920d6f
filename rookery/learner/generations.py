"""Two learners of one run cannot both train: generations are claimed through the log.

    generation = claim(bus, at_least)        # ours; every learner before it will see that

The first claim of a number in the log has it, so two that claim at once get different ones. A
learner that reads a claim of a later generation than its own is fenced: it stops, and actors ignore
whatever weights it still sends. `Branch` knows which weights led to those of now.
"""

from __future__ import annotations

import secrets

from rookery.bus import Bus, Outgoing
from rookery.messages import EXPERIENCES, LEARNER_KEY, LearnerClaimed, WeightsVersion, encode_json


def claim(bus: Bus, at_least: int) -> int:
    """A generation that no other learner of this run has or will get."""
    token = secrets.token_hex(8)
    while True:
        start = bus.end(EXPERIENCES)  # before the look at what is taken: no claim is in between
        generation = max(at_least - 1, newest_generation(bus)) + 1
        claimed = LearnerClaimed(generation=generation, token=token)
        headers = {"kind": "claimed", "generation": str(generation), "token": token, "steps": "0"}
        key = f"{LEARNER_KEY}{generation}"
        bus.publish([Outgoing(EXPERIENCES, encode_json(claimed), key, headers)])
        claims = (h for h in bus.headers(EXPERIENCES, start) if h.get("kind") == "claimed")
        first = next(h for h in claims if h.get("generation") == str(generation))
        if first.get("token") == token:
            return generation


def newest_generation(bus: Bus) -> int:
    """The last one that a learner claimed; 0: none."""
    keys = [k for k in bus.newest_headers(EXPERIENCES) if k.startswith(LEARNER_KEY)]
    numbers = [key.removeprefix(LEARNER_KEY) for key in keys]
    return max([0, *(int(number) for number in numbers if number.isdecimal())])


class Branch:
    """Which weights are ancestors of the current ones.

    Every learner start is a generation that goes on from some update; whatever older generations
    did after that point is not part of this history.
    """

    def __init__(self, starts: dict[int, int]) -> None:
        self.starts = starts  # generation -> the update number it began at, our own ancestry only

    def number_on_branch(self, version: WeightsVersion) -> int:
        """The update at which these weights leave our history; theirs if they never do."""
        later = [start for gen, start in self.starts.items() if gen > version.generation]
        return min([version.number, *later])

    def contains(self, version: WeightsVersion) -> bool:
        return self.number_on_branch(version) == version.number
