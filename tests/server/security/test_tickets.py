"""Tickets: once, within a minute, for one path."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import InputError
from rookery.server.security.tickets import LIFETIME_S, LONGEST_S, MAX_TICKETS, Tickets, is_artifact

PATH = "/api/v1/runs/cartpole-abc12/artifacts/videos/a b.mp4"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tickets(clock: Clock) -> Tickets:
    return Tickets(clock)


def test_a_ticket_works_once(tickets: Tickets) -> None:
    ticket = tickets.issue(PATH)
    assert len(ticket) == 43
    assert tickets.take(ticket, PATH)
    assert not tickets.take(ticket, PATH)


def test_a_ticket_works_for_its_path_alone_and_is_void_when_shown_elsewhere(
    tickets: Tickets,
) -> None:
    ticket = tickets.issue(PATH)
    assert not tickets.take(ticket, PATH + "x")
    assert not tickets.take(ticket, PATH)


@pytest.mark.parametrize(("later_s", "works"), [(LIFETIME_S - 0.01, True), (LIFETIME_S, False)])
def test_a_ticket_works_for_a_minute(
    tickets: Tickets, clock: Clock, later_s: float, works: bool
) -> None:
    ticket = tickets.issue(PATH)
    clock.now += later_s
    assert tickets.take(ticket, PATH) is works


def test_there_are_never_more_than_the_bound(tickets: Tickets) -> None:
    made = [tickets.issue(PATH) for _ in range(MAX_TICKETS + 1)]
    assert not tickets.take(made[0], PATH)
    assert tickets.take(made[1], PATH)
    assert tickets.take(made[-1], PATH)


def test_old_ones_are_forgotten(tickets: Tickets, clock: Clock) -> None:
    for _ in range(100):
        tickets.issue(PATH)
    clock.now += LIFETIME_S
    tickets.issue(PATH)
    assert len(tickets._open) == 1


def test_one_of_many_who_come_at_once_gets_in(tickets: Tickets) -> None:
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            ticket = tickets.issue(PATH)
            assert sum(pool.map(lambda _, t=ticket: tickets.take(t, PATH), range(8))) == 1


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/api/v1/runs",
        "/api/v1/runs/x/artifacts",
        "/api/v1/runs/x/artifacts/",
        "/api/v1/runs//artifacts/y",
        "/api/v1/runs/x/events/artifacts/y",
        "/api/v1/tokens/x/artifacts/y",
        "/api/v1/runs/x/artifacts/../../../tokens",
        "/api/v1/runs/../artifacts/y",
        "api/v1/runs/x/artifacts/y",
        "https://evil.example/api/v1/runs/x/artifacts/y",
        "/api/v1/runs/x/artifacts/" + "y" * 1000,
    ],
)
def test_no_ticket_is_for_anything_but_an_artifact(tickets: Tickets, path: str) -> None:
    with pytest.raises(InputError, match="artifacts"):
        tickets.issue(path)


@given(st.text())
def test_no_other_text_is_a_ticket(text: str) -> None:
    tickets = Tickets()
    ticket = tickets.issue(PATH)
    assert text == ticket or not tickets.take(text, PATH)
    assert tickets.take(ticket, PATH) is (text != ticket)


@given(st.text(), st.text())
def test_a_ticket_is_bound_to_its_path(ending: str, path: str) -> None:
    own = f"/api/v1/runs/x/artifacts/{ending}"
    if is_artifact(own):
        tickets = Tickets()
        assert tickets.take(tickets.issue(own), path) is (path == own)


def test_a_part_leaves_the_ticket_good_and_the_whole_ends_it(tickets: Tickets) -> None:
    ticket = tickets.issue(PATH)
    assert all(tickets.take(ticket, PATH, whole=False) for _ in range(5))
    assert tickets.take(ticket, PATH)
    assert not tickets.take(ticket, PATH, whole=False)


def test_parts_come_within_a_minute_of_each_other_and_within_an_hour(
    tickets: Tickets, clock: Clock
) -> None:
    ticket, other = tickets.issue(PATH), tickets.issue(PATH)
    began = clock.now
    while clock.now < began + LONGEST_S:
        assert tickets.take(ticket, PATH, whole=False)
        clock.now += LIFETIME_S - 1
    assert not tickets.take(ticket, PATH, whole=False)
    assert not tickets.take(other, PATH, whole=False)
    late = tickets.issue(PATH)
    assert tickets.take(late, PATH, whole=False)
    clock.now += LIFETIME_S
    assert not tickets.take(late, PATH, whole=False)
