"""One thread that reads for everybody: the control log, and the metrics of all runs.

    follower = Follower(home)
    follower.start()
    follower.ready.wait(10.0)
    follower.states["cartpole-k3f9a"], follower.training("cartpole-k3f9a")
    stop = follower.listen(lambda messages: ...)  # in the follower's thread

Whoever asks is answered from memory. What is older than memory is read from the bus, by `log` and
`read`, in the thread of who asks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

from rookery.control.home import Home
from rookery.control.log_messages import CHANNELS, Message
from rookery.control.log_reader import Portion, read_bus, split_channel
from rookery.control.run_state import DELETED, STOPPED, RunState
from rookery.errors import RookeryError
from rookery.messages import ActorMetrics, CommandAccepted, CommandRejected, TrainingMetrics
from rookery.server.feed.control_log import ControlFeed
from rookery.server.feed.recent_log import Stretch
from rookery.server.feed.runs import Feeds

__all__ = ["Follower", "Message", "Portion"]

OWNER_S = 0.5  # how often a run's lease is looked at
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0  # after failures
CLOSE_S = 10.0

logger = logging.getLogger(__name__)

T = TypeVar("T")
Listener = Callable[[list[Message]], None]


class Follower:
    """Follows the control log and every run's metrics in one thread; keeps the newest in memory and
    hands every message on."""

    def __init__(self, home: Home, interval_s: float = 0.05) -> None:
        self.home = home
        self.ready = threading.Event()  # after the first full read
        self._interval_s = interval_s
        self._control, self._feeds = ControlFeed(home), Feeds(home)
        self._waiting: list[Message] = []  # read, not handed on yet
        self._listeners: list[Listener] = []
        self._editing = threading.Lock()  # of the listeners
        self._turning = threading.Lock()  # held while messages are read and handed on
        self._owned: dict[str, tuple[float, bool, bool]] = {}  # looked at when; owned; frozen
        self._trouble: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; the home stays open."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    # --- from memory -----------------------------------------------------------------------------

    @property
    def states(self) -> Mapping[str, RunState]:
        """All runs, the deleted ones too; never changed, but exchanged as a whole."""
        return self._control.states

    @property
    def trouble(self) -> str | None:
        """One line while the log cannot be read."""
        return self._trouble

    @property
    def troubles(self) -> dict[str, str]:
        """Run -> one line while its metrics cannot be read."""
        return self._feeds.troubles

    def training(self, run: str) -> TrainingMetrics | None:
        """The newest."""
        metrics = self._feeds.metrics.get(run)
        return metrics.training if metrics is not None else None

    def actor_metrics(self, run: str) -> dict[str, ActorMetrics]:
        """The newest of each actor's newest incarnation, by actor id."""
        metrics = self._feeds.metrics.get(run)
        return dict(metrics.actors) if metrics is not None else {}

    def owner(self, run: str) -> str:
        """Who carries the run: server, terminal, or empty."""
        state = self.states.get(run)
        if state is None or state.desired == DELETED:
            return ""
        owned, _ = self._look_at_owner(run)
        return (state.owned_by or "terminal") if owned else ""

    def owner_frozen(self, run: str) -> bool:
        """Whether whoever carries the run is stopped."""
        return self._look_at_owner(run)[1]

    def _look_at_owner(self, run: str) -> tuple[bool, bool]:
        looked_at, owned, frozen = self._owned.get(run, (0.0, False, False))
        now = time.monotonic()
        if now - looked_at >= OWNER_S:
            owned, frozen = self.home.is_owned(run), self.home.owner_frozen(run)
            self._owned[run] = (now, owned, frozen)
        return owned, frozen

    def answer(self, command_id: str) -> CommandAccepted | CommandRejected | None:
        """What became of a command, if that was lately."""
        return self._control.answers.get(command_id)

    def end(self, channel: str) -> int:
        """The newest seq that was handed on; -1: none."""
        if channel in CHANNELS:
            return self._control.ends[channel]
        part, run = split_channel(channel)
        metrics = self._feeds.metrics.get(run)
        return metrics.ends[part] if metrics is not None else -1

    def resting_end(self, channel: str) -> int:
        """The same, of the metrics of a run that does not run: nothing is on its way; else -1."""
        state = self.states.get(split_channel(channel)[1])
        return self.end(channel) if state is not None and state.desired == STOPPED else -1

    # --- from memory, or else from the bus --------------------------------------------------------

    def log(
        self, channel: Literal["events", "commands"], run: str | None, after: int, limit: int
    ) -> list[Message]:
        """The first messages after a seq, of all runs or of one."""
        found = self._control.recent[channel].since(after, limit, run)
        if found is not None:
            return found
        return read_bus(self.home, None, channel, run, after, limit).messages

    def read(self, channel: str, after: int, limit: int) -> list[Message]:
        """The first messages of any channel after a seq."""
        return self.portion(channel, after, limit).messages

    def portion(self, channel: str, after: int, limit: int) -> Portion:
        """The same, and where it begins: retention may have taken what came before."""
        stretch = self._stretch(channel)
        found = stretch.since(after, limit) if stretch is not None else None
        if found is not None:
            return Portion(after + 1, found)
        state = self.states.get(split_channel(channel)[1])
        return read_bus(self.home, state, channel, None, after, limit)

    def _stretch(self, channel: str) -> Stretch | None:
        if channel in CHANNELS:
            return self._control.recent[channel]
        part, run = split_channel(channel)
        metrics = self._feeds.metrics.get(run)
        return metrics.recent.get(part) if metrics is not None else None

    # --- handing on ------------------------------------------------------------------------------

    def listen(self, callback: Listener) -> Callable[[], None]:
        """Call with each batch of new messages, in the follower's thread, until the returned
        function is called; a batch that is on its way then may still come."""

        def leave() -> None:
            with self._editing:
                self._listeners = [each for each in self._listeners if each is not callback]

        with self._editing:
            self._listeners = [*self._listeners, callback]
        return leave

    def join(self, callback: Listener) -> tuple[dict[str, int], Callable[[], None]]:
        """Listen, and know after which seq of each channel that begins; waits for a turn's end."""
        with self._turning:
            return self._ends(), self.listen(callback)

    def _ends(self) -> dict[str, int]:
        ends = dict(self._control.ends)
        for run, metrics in list(self._feeds.metrics.items()):
            ends.update({f"{part}/{run}": end for part, end in metrics.ends.items() if end >= 0})
        return ends

    async def until(self, run: str, probe: Callable[[], T | None], wait_s: float) -> T | None:
        """What `probe` finds, asked at once and whenever there is something new; None: nothing."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake(messages: list[Message]) -> None:
            loop.call_soon_threadsafe(changed.set)

        leave = self.listen(wake)
        try:
            async with asyncio.timeout(wait_s):
                while (found := probe()) is None:
                    await changed.wait()
                    changed.clear()
                return found
        except TimeoutError:
            return probe()
        finally:
            leave()

    # --- the thread ------------------------------------------------------------------------------

    def _follow(self) -> None:
        pause_s, failures = 0.0, 0
        while not self._stopping.wait(pause_s):
            began = time.monotonic()
            try:
                with self._turning:
                    self._turn()
                self._trouble, failures = self.home.control.trouble, 0
                pause_s = max(0.0, self._interval_s - (time.monotonic() - began))
                continue
            except (RookeryError, OSError) as error:
                self._fail(f"the log of {self.home.path} cannot be read: {error}")
            except Exception as error:
                logger.exception("following %s", self.home.path)
                self._fail(f"following {self.home.path} fails: {type(error).__name__}: {error}")
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failures)
            failures = min(failures + 1, 10)
        self._feeds.close()

    def _turn(self) -> None:
        """Read once what is new, and hand it on."""
        is_new = self.ready.is_set()  # else all that there is was there before
        messages = self._control.poll()
        self._waiting += messages
        if not is_new:
            self._feeds.begin(self.states.values())
        for run in {message.run for message in messages if is_new} & self.states.keys():
            self._feeds.look(self.states[run], is_new=True)
        self._waiting += self._feeds.poll()
        messages, self._waiting = self._waiting, []
        if messages and is_new:
            for listener in self._listeners:
                self._hand_on(messages, listener)
        self.ready.set()

    def _hand_on(self, messages: list[Message], listener: Listener) -> None:
        try:
            listener(messages)
        except Exception:
            logger.exception("a listener failed on %d messages", len(messages))

    def _fail(self, line: str) -> None:
        """Say so, and begin again where the reading was left."""
        if line != self._trouble:
            logger.error("%s", line)
        self._trouble = line
        try:
            self._control.reset()
            self._feeds.reset()
        except (RookeryError, OSError) as error:
            logger.error("the log of %s was not closed: %s", self.home.path, error)
