"""`rookery viewer`: what a server starts for each person who watches.

Orders come on standard input and each has one reply on standard output, a line of JSON each; what
environments print goes to standard error. Whoever asks sets the pace: without an order nothing is
played. When standard input ends, so does this process.
"""

from __future__ import annotations

import os
import sys
import traceback

import msgspec

from rookery.control.home import Home
from rookery.errors import InputError, RookeryError
from rookery.output import keep_stdout
from rookery.viewing import Next, Order, Refused, Reply, Restart, Seek, Watch
from rookery.viewing.game import Viewing
from rookery.viewing.replay import Replay
from rookery.worker.process import die_with_parent, step_back
from rookery.worker.xla import prepare_xla

MAX_ORDER_BYTES = 64 << 10
NICENESS = 2  # behind whoever answers, before those who train


class Viewer:
    """Carries out orders; whatever goes wrong is one line."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._viewing: Viewing | Replay | None = None

    def reply(self, order: Order) -> Reply:
        try:
            return self._carry_out(order)
        except RookeryError as error:
            said = str(error)
        except Exception as error:  # noqa: BLE001 others' code: its last words are the reply
            traceback.print_exc()
            said = f"{type(error).__name__}: {error}"
        self.close()
        return Refused(" ".join(said.split()))

    def _carry_out(self, order: Order) -> Reply:
        match order:
            case Watch():
                self.close()
                self._viewing = (Replay if order.game else Viewing)(self._home, order)
                return self._viewing.watching
            case _ if self._viewing is None:
                return Refused("say first what to watch")
            case Seek(step=step):
                if not isinstance(self._viewing, Replay):
                    raise InputError("a game that is played now can't be wound: watch a kept one")
                return self._viewing.seek(step)
            case Next() | Restart():
                if isinstance(order, Restart):
                    self._viewing.restart()
                return self._viewing.next()

    def close(self) -> None:
        viewing, self._viewing = self._viewing, None
        if viewing is not None:
            viewing.close()


def main() -> int:
    die_with_parent()
    step_back(NICENESS)
    replies = keep_stdout().buffer
    os.environ |= {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}  # no screen is needed
    os.environ.setdefault("MUJOCO_GL", "egl")
    prepare_xla(1)
    decode, encode = msgspec.json.Decoder(Order).decode, msgspec.json.Encoder().encode
    viewer = Viewer(Home.default())
    try:
        while (line := sys.stdin.buffer.readline(MAX_ORDER_BYTES)).endswith(b"\n"):
            replies.write(encode(viewer.reply(decode(line))) + b"\n")
            replies.flush()
    finally:
        viewer.close()
    return 0
