"""Learners that train one run together: the same update as one learner's, and one end for all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rookery.bus.memory import MemoryBus
from rookery.errors import CrewLost, MessageError
from rookery.learner import crew
from rookery.learner.crew import Bond, answer, call
from rookery.learner.generations import claim
from rookery.learner.line import Line
from rookery.messages import CREW_KEY, MODEL_UPDATES, CrewCalled, decode_json
from rookery.messages.crew import Hello, Over, Shared, decode_crew, encode_crew
from rookery.worker import LEFT_ALONE

HERE = "127.0.0.1"
WAIT_S = 20.0


@pytest.fixture(scope="module")
def compared() -> Any:
    """Two learners' updates beside one's, from a process of its own that has two devices."""
    script = Path(__file__).with_name("crew_maths.py")
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", ["ppo with an encoder", "impala"])
def test_two_learners_make_the_update_that_one_makes(compared: Any, case: str) -> None:
    """Parameters, moments, statistics and metrics, though their shares of the rows differ."""
    gaps = compared[case]["gaps"]
    assert any("optimizer/mean" in name for name in gaps)
    assert any("stats/obs.mean" in name for name in gaps)
    assert {name: gap for name, gap in gaps.items() if gap > 1e-5} == {}


def test_the_kl_of_the_whole_minibatch_stops_both(compared: Any) -> None:
    """If they disagreed about where to stop, they would not have come back at all."""
    found = compared["ppo stopped"]
    assert found["gaps"]["metric gradient_steps"] == 0 and found["gaps"]["metric kl"] < 1e-5
    assert 0 < found["last"]["gradient_steps"] < found["all_steps"]


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server((HERE, 0)) as listener:
        near = socket.create_connection(listener.getsockname(), WAIT_S)
        return near, listener.accept()[0]


@pytest.fixture
def ends() -> Iterator[tuple[Line, Line, Bond, Bond, list[int]]]:
    """Two ends of a line, what ties each to the other, and what ended."""
    left, right = pair()
    ended: list[int] = []
    bonds = Bond(ended.append), Bond(ended.append)
    lines = Line(left, "learner-1", bonds[0].lose), Line(right, "learner-0", bonds[1].lose)
    yield *lines, *bonds, ended
    for bond, line in zip(bonds, lines, strict=True):
        bond.loosen()
        line.close()


def test_arrays_cross_a_line(ends: Any) -> None:
    near, far, *_ = ends
    arrays = [("0/order", np.arange(6, dtype=np.int32).reshape(3, 2)), ("0/valid", np.eye(2) > 0)]
    near.send(encode_crew(Shared(0, ({"learning_rate": 0.5},)), arrays))
    message = far.receive(WAIT_S)
    assert message.word == Shared(0, ({"learning_rate": 0.5},))
    for name, array in arrays:
        assert message.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(message.arrays[name], array)


def test_half_of_an_array_does_not_cross_unseen(ends: Any) -> None:
    near, far, *_ = ends
    whole = encode_crew(Hello("word", 1), [("a", np.ones((4, 4)))])
    with pytest.raises(MessageError):
        decode_crew(whole[:-8])
    near.send(bytes(len(whole)))
    assert far.receive(0.2) is None


def wait_for(event: Any, what: str) -> None:
    assert event.wait(WAIT_S), f"waited in vain for {what}"


def test_a_learner_whose_other_is_gone_is_ended_even_if_it_cannot_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crew, "GRACE_S", 0.01)
    left, right = pair()
    over, codes = threading.Event(), []
    bond = Bond(lambda code: (codes.append(code), over.set()))
    line = Line(left, "learner-1", bond.lose)
    right.close()
    wait_for(over, "the end of the one that is left")
    assert codes == [LEFT_ALONE]
    with pytest.raises(CrewLost, match="learner-1 is gone"):
        bond.check()
    assert isinstance(bond.explain(RuntimeError("a collective failed")), CrewLost)
    line.close()


def test_whoever_said_that_it_is_over_is_no_loss(ends: Any) -> None:
    near, far, _, bond, ended = ends
    near.send(encode_crew(Over()))
    assert isinstance(far.receive(WAIT_S).word, Over)
    near.close()
    assert not bond.check() and ended == []


class Crew:
    """A leader that calls in a thread of its own, on a bus in memory."""

    def __init__(self, size: int = 2) -> None:
        self.bus, self.bond = MemoryBus(), Bond(lambda code: None)
        self.generation = claim(self.bus, 1)
        self.stopped = False
        self.found: Any = None
        self._size = size
        self._thread = threading.Thread(target=self._call, daemon=True)
        self._thread.start()

    def _call(self) -> None:
        try:
            asked = self.bus, "run", self.generation, self._size, HERE, self.bond
            self.found = call(*asked, lambda: self.stopped)
        except CrewLost as error:
            self.found = error

    @property
    def called(self) -> CrewCalled:
        for _ in self.bus.subscribe(MODEL_UPDATES, "earliest").poll(WAIT_S):
            break
        record = self.bus.newest(MODEL_UPDATES, CREW_KEY)
        assert record is not None
        return decode_json(record.payload, CrewCalled)

    def end(self) -> Any:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self.bond.loosen()
        return self.found


def never() -> bool:
    return False


def test_a_follower_finds_its_leader_and_learns_where_to_meet() -> None:
    world = Crew()
    bond = Bond(lambda code: None)
    found = answer(world.bus, 1, bond, never)
    assert found is not None
    line, welcome, here = found
    lines, coordinator = world.end()
    bond.loosen()
    assert [each.name for each in lines] == ["learner-1"] and here == HERE
    assert (welcome.size, welcome.generation) == (2, world.generation)
    assert welcome.coordinator == coordinator and coordinator.startswith(f"{HERE}:")
    for each in (line, *lines):
        each.close()


@pytest.mark.parametrize(
    "said", [encode_crew(Hello("no such word", 1)), b"GET / HTTP/1.1\r\n\r\n", b""]
)
def test_strangers_are_sent_away_and_the_follower_still_comes(said: bytes) -> None:
    world = Crew()
    with socket.create_connection((HERE, world.called.port), WAIT_S) as stranger:
        stranger.sendall(len(said).to_bytes(8, "little") + said)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b""
    bond = Bond(lambda code: None)
    found = answer(world.bus, 1, bond, never)
    assert found is not None
    lines, _ = world.end()
    bond.loosen()
    for each in (found[0], *lines):
        each.close()


def test_nobody_goes_to_a_leader_whose_run_another_took_over() -> None:
    world = Crew()
    assert world.called.generation == 1
    claim(world.bus, 1)
    looks = iter([False] * 3 + [True] * 9)
    assert answer(world.bus, 1, Bond(lambda code: None), lambda: next(looks)) is None
    world.stopped = True
    assert isinstance(world.end(), CrewLost)


def test_a_leader_that_waits_for_its_crew_can_be_stopped() -> None:
    world = Crew()
    world.stopped = True
    assert "asked to stop" in str(world.end())
