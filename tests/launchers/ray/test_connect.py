"""Getting onto a cluster."""

from __future__ import annotations

import pytest

from rookery.launchers.ray.connect import TRIES, taken_in, why_not
from rookery.launchers.ray.settings import RaySettings

LOST = (  # in the words of Ray 2.60
    'File "proxier.py", line 772, in Datapath RuntimeError: Starting Ray client server failed. See',
    'File "proxier.py", line 396, in start_specific_server psutil.ZombieProcess: PID still exists',
)


class Cluster:
    """Turns clients away so many times."""

    def __init__(self, times: int, why: str = LOST[0]) -> None:
        self._times, self._why = times, why
        self.tried = 0

    def join(self) -> str:
        self.tried += 1
        if self.tried <= self._times:
            raise ConnectionAbortedError(f"Initialization failure from server: {self._why}.")
        return "in"


@pytest.mark.parametrize("why", LOST)
def test_a_client_that_the_cluster_lost_tries_again(why: str) -> None:
    cluster = Cluster(TRIES - 1, why)
    assert taken_in(cluster.join) == "in"
    assert cluster.tried == TRIES


def test_it_gives_up_after_some_tries_and_says_what_helps() -> None:
    cluster = Cluster(TRIES)
    with pytest.raises(ConnectionAbortedError) as caught:
        taken_in(cluster.join)
    assert cluster.tried == TRIES
    said = why_not(RaySettings(address="ray://head:10001"), caught.value)
    assert "ray://head:10001 could not start a process for this client" in said
    assert "GRPC_ENABLE_FORK_SUPPORT=0" in said


def test_what_another_try_cannot_mend_is_told_at_once() -> None:
    cluster = Cluster(1, "another token is wanted")
    with pytest.raises(ConnectionAbortedError):
        taken_in(cluster.join)
    assert cluster.tried == 1
