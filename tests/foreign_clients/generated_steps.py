"""What a generated client sees, run by the Python that has its packages: operations in, answers
out.

    python generated_steps.py FOLDER URL TOKEN < operations.json

An operation is [name, arguments], in plain data. An answer of an undocumented status raises;
`model` is what it was read as.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from enum import Enum
from typing import Any, get_type_hints

folder, url, token = sys.argv[1:]
sys.path.insert(0, folder)

import rookery_client.api  # noqa: E402
from rookery_client import AuthenticatedClient  # noqa: E402

modules = pkgutil.walk_packages(rookery_client.api.__path__, "rookery_client.api.")
OPERATIONS = {m.name.rpartition(".")[2]: m.name for m in modules if not m.ispkg}


def typed(value: Any, hint: Any) -> Any:
    """Plain data as the model or the choice that a parameter takes; all else as it is."""
    for kind in getattr(hint, "__args__", (hint,)):
        if hasattr(kind, "from_dict"):
            return kind.from_dict(value)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind(value)
    return value


def step(client: Any, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    operation = importlib.import_module(OPERATIONS[name])
    hints = get_type_hints(operation.sync_detailed)
    arguments = {key: typed(value, hints[key]) for key, value in arguments.items()}
    done = operation.sync_detailed(client=client, **arguments)
    parsed = done.parsed
    data = parsed.to_dict() if hasattr(parsed, "to_dict") else parsed
    plain = data if isinstance(data, dict | str | None) else repr(data)
    return {"status": done.status_code, "model": type(parsed).__name__, "data": plain}


with AuthenticatedClient(url, token, raise_on_unexpected_status=True, timeout=300) as client:
    json.dump([step(client, *asked) for asked in json.load(sys.stdin)], sys.stdout)
