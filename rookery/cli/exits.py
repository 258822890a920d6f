"""Exit codes, and the way out of a process that has nothing left to do."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

OK, FAILED, BAD_INPUT, LIMITED, INTERRUPTED = 0, 1, 2, 3, 130
ENDINGS = {"solved": OK, "finished": OK, "limited": LIMITED, "stopped": INTERRUPTED}


def leave(code: int) -> NoReturn:
    """Everything is written: taking XLA down in order would only cost half a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
