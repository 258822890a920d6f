"""The one way in for commands: judge what can be judged here, append, and wait for the answer.

The owner of a run has the last word. A command whose id was sent before is not appended again:
whoever sends it twice gets the same answer twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import to_thread

from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.control.effects import creates
from rookery.control.home import Home, new_run_id
from rookery.control.models import Answer, Outcome
from rookery.control.run_state import DELETED, RunState, why_not
from rookery.control.settings import Allow
from rookery.errors import Forbidden, InputError, UnknownName
from rookery.messages import (
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    Origin,
    SetSeatMap,
    StartRun,
)
from rookery.server.answers import Said, find_answers, make_answer
from rookery.server.judging import Judge, check_size
from rookery.server.sandbox import Sandbox

if TYPE_CHECKING:
    from rookery.server.feed.follower import Follower

T = TypeVar("T")

ANSWER_S = 5.0  # that an owner has for its answer
SEEN_S = 5.0  # until a new run is seen in the log
KEPT_SENT = 4096  # commands whose effect is remembered
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


class Sender:
    """Sends commands for whoever came in by a door. Lives on one event loop."""

    def __init__(
        self, home: Home, follower: Follower, allow: Allow, sandbox: Sandbox, carries: bool
    ) -> None:
        """`carries`: whether this process sees to every run that nobody else owns."""
        self._home, self._follower, self._judge = home, follower, Judge(home, allow)
        self._sandbox, self._carries = sandbox, carries
        self._sent: OrderedDict[str, str] = OrderedDict()  # id -> its effect
        self._busy: dict[str, tuple[asyncio.Lock, int]] = {}  # id on its way -> how many wait
        self._waiting: set[Callable[[], None]] = set()  # called when there is something new
        follower.listen(self._heard)

    async def submit(self, command: Command, wait_s: float) -> Answer:
        async with self._alone(command.id):
            state = self._state(command)
            if not self._was_sent(state, command.id):
                command = await self._checked(state, command)
                line = await to_thread.run_sync(self._judge.effect, state, command)
                await self._append(line, command)
        line = self._sent.get(command.id, "")
        return await self._answer(command, line, wait_s)

    def dry_run(self, command: Command) -> Answer:
        state = self._state(command)
        try:
            command = self._judge.judged(state, command)
            why = why_not(state, command)
        except Forbidden:
            raise
        except InputError as error:
            why = str(error)
        outcome: Outcome = "would_reject" if why else "would_accept"
        line = "" if why else self._judge.effect(state, command)
        return make_answer(command, outcome, why or "", line)

    async def create(
        self,
        values: Mapping[str, Any],
        *,
        author: str,
        reason: str,
        id: str,
        origin: Origin,
        start: bool,
        dry_run: bool,
    ) -> Answer:
        async with self._alone(id):
            run = self._created_by(id)
            if run is None:
                config = build(values)
                self._judge.check_config(config, origin)
                line = creates(config, start)
                content = {"config": config.model_dump(mode="json")}
                content["spec"] = await self._sandbox.look(content)
                run = "" if dry_run else self._new_run(config, id)
                who: dict[str, Any] = {"author": author, "reason": reason, "origin": origin}
                command = CreateRun(run=run, id=id, config=content, **who)
                if dry_run:
                    return make_answer(command, "would_accept", "", line)
                begin = [StartRun(run=run, id=_derived(id), **who)] if start else []
                await self._append(line, command, *begin)
                await self._until(lambda: self._follower.states.get(run), SEEN_S)
        made = CreateRun(run=run, id=id, config={})
        return await self._answer(made, self._sent.get(id, ""), ANSWER_S)

    def sent_before(self, prefix: str) -> str | None:
        for id in self._sent:
            if id.startswith(prefix):
                return id
        for state in list(self._follower.states.values()):
            for id in (*state.commands, *list(state.answered)):
                if id.startswith(prefix):
                    return id
        return None

    def _state(self, command: Command) -> RunState:
        state = self._follower.states.get(command.run)
        if state is None or state.desired == DELETED:
            raise UnknownName("run", command.run, (), "see the list of runs")
        return state

    async def _checked(self, state: RunState, command: Command) -> Command:
        """As judged, and a new seat map's players are made once, elsewhere."""
        command = self._judge.judged(state, command)
        if isinstance(command, SetSeatMap) and why_not(state, command) is None:
            await self._sandbox.look({**state.config, "seats": command.seats})
        return command

    # --- sending ---------------------------------------------------------------------------------

    def _was_sent(self, state: RunState, id: str) -> bool:
        return id in self._sent or id in state.answered or id in state.commands

    async def _append(self, line: str, *commands: Command) -> None:
        """All of them at once, or none."""
        for command in commands:
            check_size(command)
        await to_thread.run_sync(self._home.send, *commands)
        for command in commands:
            self._sent[command.id] = line
        while len(self._sent) > KEPT_SENT:
            self._sent.popitem(last=False)

    async def _answer(self, command: Command, line: str, wait_s: float) -> Answer:
        owned = self._carries or bool(self._follower.owner(command.run))
        state = self._follower.states.get(command.run)
        found: Said | None = None
        if state is not None and command.id in state.answered:
            said = await to_thread.run_sync(find_answers, self._follower, [command])
            found = said.get(command.id)
        if found is None:  # states may be a moment ahead of the answers in them
            found = await self._until(
                lambda: self._follower.answer(command.id), wait_s if owned else 0.0
            )
        match found:
            case CommandAccepted():
                return make_answer(command, "accepted", "", line)
            case CommandRejected(why=why):
                return make_answer(command, "rejected", why, "")
        return make_answer(command, "waiting", "", line)

    async def _until(self, probe: Callable[[], T | None], wait_s: float) -> T | None:
        """What `probe` finds, looked for whenever the follower has something new."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        self._waiting.add(wake)
        try:
            async with asyncio.timeout(wait_s):
                while (found := probe()) is None:
                    await changed.wait()
                    changed.clear()
                return found
        except TimeoutError:
            return probe()
        finally:
            self._waiting.discard(wake)

    def _heard(self, messages: object) -> None:
        """In the follower's thread."""
        for wake in list(self._waiting):
            wake()

    @asynccontextmanager
    async def _alone(self, id: str) -> AsyncIterator[None]:
        """One at a time for the same id: the second finds what the first has done."""
        lock, users = self._busy.get(id, (asyncio.Lock(), 0))
        self._busy[id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            _, users = self._busy.pop(id)
            if users > 1:
                self._busy[id] = lock, users - 1

    # --- new runs --------------------------------------------------------------------------------

    def _created_by(self, id: str) -> str | None:
        states = list(self._follower.states.values())
        return next((state.id for state in states if state.created_by == id), None)

    def _new_run(self, config: RunConfig, id: str) -> str:
        """A name that the same command always gets; longer where a shorter one is taken."""
        slug = new_run_id(config.environment.id).rpartition("-")[0]
        letters = "".join(LETTERS[b % len(LETTERS)] for b in hashlib.sha256(id.encode()).digest())
        for length in range(5, len(letters)):
            run = f"{slug}-{letters[:length]}"
            if run not in self._follower.states:
                return run
        raise InputError(f"there is no name left for a run of {config.environment.id}")


def _derived(id: str) -> str:
    """The id of the StartRun that belongs to a CreateRun."""
    return hashlib.sha256(f"start {id}".encode()).hexdigest()[:32]
