"""`python -m rookery` and the `rookery` command."""

from __future__ import annotations

import sys
import time

_BEGAN = time.monotonic()  # as early as it gets: `wall_s` counts from here


def main() -> None:
    from rookery.cli.main import run

    sys.exit(run(sys.argv[1:], _BEGAN))


if __name__ == "__main__":
    main()
