"""The resources of MCP: what the reading tools answer by themselves, under an address.

rookery://runs                  the newest runs
rookery://runs/{run}/config     its config as it is now
rookery://runs/{run}/metrics    its return, speed, lag and losses over time
rookery://runs/{run}/events     what happened last
rookery://runs/{run}/why        what is stuck
"""

from __future__ import annotations

import re

from pydantic import BaseModel

from rookery.errors import UnknownName
from rookery.server.mcp.calls import Call, Tool
from rookery.server.mcp.tools import TOOLS

RUNS = "rookery://runs"
OF_RUN = {
    f"{RUNS}/{{run}}/{part}": TOOLS[tool]
    for part, tool in {
        "config": "get_config",
        "metrics": "get_metrics",
        "events": "get_events",
        "why": "why",
    }.items()
}
_ADDRESS = re.compile(r"rookery://runs/([A-Za-z0-9_][A-Za-z0-9._-]{0,99})/([a-z]{1,20})")


def name_of(address: str) -> str:
    """`run_config` of rookery://runs/{run}/config."""
    return "runs" if address == RUNS else f"run_{address.rpartition('/')[2]}"


async def read(call: Call, address: str) -> BaseModel:
    """What stands under an address."""
    if address == RUNS:
        tool = TOOLS["list_runs"]
        return await tool.act(call, tool.takes())
    found = _ADDRESS.fullmatch(address)
    of_run: Tool | None = OF_RUN.get(f"{RUNS}/{{run}}/{found[2]}") if found else None
    if found is None or of_run is None:
        raise UnknownName("resource", address[:200], (RUNS, *OF_RUN))
    return await of_run.act(call, of_run.takes(run=found[1]))
