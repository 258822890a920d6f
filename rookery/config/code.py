"""Code that a config names as `module:name`."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

from rookery.errors import InputError, first_line, nearest_names

_thread = threading.local()


def imported_now() -> str:
    """The module that this thread is importing since a config names it; empty: none."""
    return getattr(_thread, "imports", "")


def refuse_while_imported(call: str) -> None:
    """Refuse what would begin a run in the middle of an import: each run imports the module anew,
    in several processes, so there would be no end of runs."""
    module = imported_now()
    if module:
        raise InputError(
            f"{call} was called while a run imports {module}, and would begin run after run: "
            'put the call under `if __name__ == "__main__":` there'
        )


def load(what: str, target: str) -> Any:
    """What `module:name` names, with the current directory importable; `what` is its noun."""
    module, _, name = target.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    outer, _thread.imports = imported_now(), module
    try:
        imported = importlib.import_module(module)
    except InputError:
        raise  # it says what to do already
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise InputError(
                f"{what} {target}: there is no module {error.name!r}, "
                f"neither in {here} nor installed"
            ) from error
        raise InputError(
            f"{what} {target}: importing {module} needs the module {error.name!r}, "
            "which is not installed"
        ) from error
    except Exception as error:
        raise InputError(
            f"{what} {target}: importing {module} raised "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    finally:
        _thread.imports = outer
    found = getattr(imported, name, None)
    if found is None:
        near = nearest_names(name, (n for n in vars(imported) if not n.startswith("_")))
        advice = f"; did you mean {', '.join(near)}?" if near else ""
        raise InputError(f"{what} {target}: {module} has no {name!r}{advice}")
    return found
