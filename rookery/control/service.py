"""The one way in for commands, near and far: judge, sign and append, and wait for the answer.

    service = Service(home, follower, sandbox.check, settings.allow, carries=True)
    await service.submit(PauseRun(run=run, author="ann"), wait_s=5.0)

Every door stands before it: REST, MCP, the Python client, the command line. The owner of a run has
the last word. A command whose id was sent before is not appended again: whoever sends it twice gets
the same answer twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from rookery.config.models import RunConfig
from rookery.control.effects import creates
from rookery.control.files import make_room
from rookery.control.find import find_run
from rookery.control.home import Home, new_run_id
from rookery.control.judge import Judge, check_size, runs_named
from rookery.control.log_pages import LogView, Said, find_answers
from rookery.control.models import Answer, Outcome
from rookery.control.run_state import DELETED, RunState, why_not
from rookery.control.settings import Allow
from rookery.errors import ConfigError, Forbidden, InputError, UnknownName
from rookery.messages import (
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    DeleteRun,
    Origin,
    ScaleActors,
    ScaleLearner,
    SetSeatMap,
    StartRun,
)
from rookery.spaces import spec_from_json

if TYPE_CHECKING:
    from rookery.control.fork import Fork

ANSWER_S = 5.0  # that an owner has for its answer
SEEN_S = 5.0  # until a new run is seen in the log
KEPT_SENT = 4096  # commands whose effect is remembered
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"

Check = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Takes an order of `control/check.py` and returns the environment's spec; an InputError says what
is wrong with it."""


class Service:
    """Sends commands for whoever came in by a door. Lives on one event loop."""

    def __init__(self, home: Home, log: LogView, check: Check, allow: Allow, carries: bool) -> None:
        """`carries`: whether every command is answered, also where nobody owns its run yet."""
        self._home, self._log, self._judge = home, log, Judge(home, allow)
        self._check, self._carries = check, carries
        self._sent: OrderedDict[str, str] = OrderedDict()  # id -> its effect
        self._fit: set[str] = set()  # runs whose batches fit with as many actors as they may have
        self._busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by id

    async def submit(self, command: Command, wait_s: float = ANSWER_S) -> Answer:
        """Append a command and wait for its answer; raises what is known to be wrong with it."""
        async with self._alone(command.id):
            state = self._state(command)
            if not self._was_sent(state, command.id):
                command = await self._checked(state, command)
                line = await asyncio.to_thread(self._judge.effect, state, command)
                if isinstance(command, DeleteRun) and why_not(state, command) is None:
                    await asyncio.to_thread(make_room, self._home, command.run)
                await self._append(line, command)
        return await self._answer(command, wait_s)

    async def dry_run(self, command: Command) -> Answer:
        """What would become of a command, judged by what is known now."""
        state = self._state(command)
        try:
            command = await self._checked(state, command)
            why = why_not(state, command)
        except Forbidden:
            raise
        except InputError as error:
            why = str(error)
        if why is not None:
            return _made(command, "would_reject", why, "")
        line = await asyncio.to_thread(self._judge.effect, state, command)
        return _made(command, "would_accept", "", line)

    async def create(
        self,
        config: RunConfig,
        *,
        author: str,
        id: str,
        reason: str = "",
        origin: Origin = "local",
        start: bool = True,
        dry_run: bool = False,
        run: str = "",
        labels: Mapping[str, Any] | None = None,
        wait_s: float = ANSWER_S,
    ) -> Answer:
        """Create a run and start it, once it is known what its environment looks like.

        `run`: its id, else one is made; `labels`: its name, tags and notes, as far as they are
        given. The same `id` again is the same run.
        """
        async with self._alone(id):
            known = self._created_by(id)
            if known is not None:
                run = known
            else:
                self._judge.check_config(config, origin)
                if config.replay.run:
                    self._check_run("replay.run", config.replay.run)
                content: dict[str, Any] = {"config": config.model_dump(mode="json")}
                content["spec"] = await self._check(content)
                fork = await asyncio.to_thread(self._fork, config, content["spec"])
                if fork is not None:
                    content["config"]["parent"] = {"run": fork.run, "version": fork.version}
                line = creates(config, start, fork.summary if fork is not None else "")
                run = "" if dry_run else run or self._new_run(config, id)
                who: dict[str, Any] = {"author": author, "reason": reason, "origin": origin}
                command = CreateRun(run=run, id=id, config=content, **who, **(labels or {}))
                if dry_run:
                    check_size(command)
                    return _made(command, "would_accept", "", line)
                begin = [StartRun(run=run, id=_derived(id), **who)] if start else []
                if fork is not None:
                    files = self._home.files_for(run, config, fork.spec)
                    saved = await asyncio.to_thread(fork.begin, files)
                await self._append(line, command, *begin)
                if fork is not None:
                    await asyncio.to_thread(self._home.record, saved)
                await self._log.until(run, lambda: self._log.states.get(run), SEEN_S)
        return await self._answer(CreateRun(run=run, id=id, config={}), wait_s)

    def sent_before(self, prefix: str) -> str | None:
        """The id of a command that begins like this, if one was ever sent."""
        for id in self._sent:
            if id.startswith(prefix):
                return id
        for state in list(self._log.states.values()):
            for id in (*state.commands, *list(state.answered)):
                if id.startswith(prefix):
                    return id
        return None

    def _state(self, command: Command) -> RunState:
        state = self._log.states.get(command.run)
        if state is None or state.desired == DELETED:
            raise UnknownName("run", command.run, (), "see the list of runs")
        return state

    async def _checked(self, state: RunState, command: Command) -> Command:
        """As judged; a match's runs are there, a new seat map's players are made once, larger
        batches fit, and more learners can share them."""
        command = self._judge.judged(state, command)
        for where, run in runs_named(command):
            self._check_run(where, run)
        if why_not(state, command) is not None:
            return command
        if isinstance(command, SetSeatMap):
            await self._check({**state.config, "seats": command.seats})
        if isinstance(command, ScaleActors):
            learner = state.config.get("config", {}).get("learner", {})
            if learner.get("follows_actors") and command.count > state.actors_wanted:
                await self._check_fits(state, command.count)
        if isinstance(command, ScaleLearner) and command.count > 1:
            asked = {"learners": command.count, "actors": state.actors_wanted}
            await self._check({**state.config, **asked})
        return command

    async def _check_fits(self, state: RunState, actors: int) -> None:
        """Asked once a run, where all that it may have fit: to look takes seconds."""
        if state.id in self._fit:
            return
        try:
            await self._check({**state.config, "actors": state.max_actors})
        except InputError:
            await self._check({**state.config, "actors": actors})
        else:
            self._fit.add(state.id)

    # --- sending ---------------------------------------------------------------------------------

    def _was_sent(self, state: RunState, id: str) -> bool:
        return id in self._sent or id in state.answered or id in state.commands

    async def _append(self, line: str, *commands: Command) -> None:
        """All of them at once, or none."""
        for command in commands:
            check_size(command)
        await asyncio.to_thread(self._home.send, *commands)
        for command in commands:
            self._sent[command.id] = line
        while len(self._sent) > KEPT_SENT:
            self._sent.popitem(last=False)

    async def _answer(self, command: Command, wait_s: float) -> Answer:
        line = self._sent.get(command.id, "")
        owned = self._carries or bool(self._log.owner(command.run))
        state = self._log.states.get(command.run)
        found: Said | None = None
        if state is not None and command.id in state.answered:
            said = await asyncio.to_thread(find_answers, self._log, [command])
            found = said.get(command.id)
        if found is None:  # states may be a moment ahead of the answers in them
            patience_s = wait_s if owned else 0.0
            found = await self._log.until(
                command.run, lambda: self._log.answer(command.id), patience_s
            )
        match found:
            case CommandAccepted():
                return _made(command, "accepted", "", line)
            case CommandRejected(why=why):
                return _made(command, "rejected", why, "")
        return _made(command, "waiting", "", line)

    @asynccontextmanager
    async def _alone(self, id: str) -> AsyncIterator[None]:
        """One at a time for the same id: the second finds what the first has done."""
        lock = self._busy.setdefault(id, asyncio.Lock())
        async with lock:
            yield

    # --- new runs --------------------------------------------------------------------------------

    def _created_by(self, id: str) -> str | None:
        states = list(self._log.states.values())
        return next((state.id for state in states if state.created_by == id), None)

    def _fork(self, config: RunConfig, spec: Any) -> Fork | None:
        """What the run begins with, if it has a parent."""
        if not config.parent.run:
            return None
        from rookery.control.fork import open_fork  # imports numpy: few commands need it

        parent = self._log.states[self._check_run("parent.run", config.parent.run)]
        files = self._home.files_of(parent)
        return open_fork(files, config.parent.version, config, spec_from_json(spec))

    def _check_run(self, where: str, name: str) -> str:
        """Whoever names a run, as experience or as a player, must name one that there is; its
        id."""
        states = self._log.states.values()
        known = {state.id: state.name for state in states if state.desired != DELETED}
        try:
            return find_run(name, known)
        except UnknownName as error:
            raise ConfigError(f"{where}: {error}") from None

    def _new_run(self, config: RunConfig, id: str) -> str:
        """A name that the same command always gets; longer where a shorter one is taken."""
        slug = new_run_id(config.environment.id).rpartition("-")[0]
        letters = "".join(LETTERS[b % len(LETTERS)] for b in hashlib.sha256(id.encode()).digest())
        for length in range(5, len(letters)):
            run = f"{slug}-{letters[:length]}"
            if run not in self._log.states:
                return run
        raise InputError(f"there is no name left for a run of {config.environment.id}")


def _derived(id: str) -> str:
    """The id of the StartRun that belongs to a CreateRun."""
    return hashlib.sha256(f"start {id}".encode()).hexdigest()[:32]


def _made(command: Command, outcome: Outcome, why: str, line: str) -> Answer:
    kind: str = type(command).__struct_config__.tag  # type: ignore[assignment]
    return Answer(
        command=command.id, kind=kind, run=command.run, outcome=outcome, why=why, effect=line
    )
