"""What verbs print of what they found: plain text for people."""

from __future__ import annotations

from typing import Any

from rookery.control.diagnosis import damaged_text


def show_text(found: dict[str, Any]) -> str:
    balance_ = found["balance"]
    dropped = sum(balance_["dropped"].values())
    reasons = ", ".join(f"{why} {n:,}" for why, n in balance_["dropped"].items())
    lines = [
        f"{found['run']}  {found['environment']}  {found['algorithm']}  {found['status']}"
        + (f" ({found['reason']})" if found["reason"] else ""),
        f"  steps      {found['env_steps']:,}"
        + (f"   return {found['mean_return_100']:.1f}" if found["mean_return_100"] else ""),
        f"  balance    produced {balance_['produced']:,} = trained {balance_['trained']:,}"
        f" + dropped {dropped:,}{f' ({reasons})' if reasons else ''}"
        f" + in flight {balance_['in_flight']:,}"
        + ("" if balance_["exact"] else "   DOES NOT ADD UP"),
        f"  weights    {found['weights_version'] or '-'}",
    ]
    if found["damaged"]:
        lines.append(f"  damaged    {damaged_text(found['damaged'])}")
    for name, policy in found["policies"].items():
        mean = policy["mean_return_100"]
        shown = "-" if mean is None else f"{mean:.2f}"
        lines.append(f"  policy     {name}: trained {policy['trained']:,} steps, return {shown}")
    for seat, mean in found["seat_returns"].items():
        lines.append(f"  seat       {seat}: return {mean:.2f}")
    league = found["league"]
    if league is not None:
        lines.append(
            f"  league     {league['snapshots']} snapshots, {league['rated_games']:,} rated games; "
            f"{league['newest']} at {league['rating']:.1f} ± {1.96 * league['uncertainty']:.1f}"
        )
    for worker in found["workers"]:
        state = f"pid {worker['pid']}" if worker["alive"] else "not running"
        error = f"   last error: {worker['last_error']}" if worker["last_error"] else ""
        lines.append(
            f"  {worker['kind']} {worker['index']}    {state}, {worker['restarts']} restarts{error}"
        )
    lines.append(f"  checkpoints {', '.join(found['checkpoints']) or 'none yet'}")
    lines.append(f"  directory  {found['directory']}")
    return "\n".join(lines)
