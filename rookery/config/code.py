"""Code that a config names as `module:name`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import threading
from typing import Any

from rookery.errors import InputError, first_line, nearest_names

_thread = threading.local()
_held: set[str] = set()


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


def hold(target: str) -> None:
    """From now on this process is given `target` only as what its module itself defines.

    Somebody far away named it. Who may name `my_module:*` may name what is written there, and not
    whatever else that module has imported: `subprocess.run`, say.
    """
    _held.add(target)


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
    if target in _held and not _defines(module, found):
        raise InputError(
            f"{what} {target} is no class or function that is defined in {module}, and others "
            "cannot be named over the network: name it where it is defined"
        )
    return found


def _defines(module: str, found: Any) -> bool:
    """Decorated functions keep the module of what they wrap, which is looked at too."""
    plain = found if isinstance(found, type) else inspect.unwrap(found)
    is_code = isinstance(plain, type) or inspect.isfunction(plain)
    return is_code and getattr(found, "__module__", None) == module == plain.__module__
