"""Somebody who types a page, in its order, into a terminal in a clone of the repository.

What is typed is what the page says, but for these:
- a training of more steps than STEPS, or of no bound, gets STEPS; a submitted run goes on until it
  is stopped, since the page goes on to steer it; a sweep has at most TRIALS of one seed;
- the file that a page shows for a sweep is there as sweep.yaml;
- a server gets a free port, and addresses of it and of a broker are those of the test's own;
- RUN is the newest run, and 1f0c93aa the newest token.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import Cli
from tests.docs.pages import Fence, commands, fences
from tests.docs.terminal import Shown, Terminal

STEPS = 20_000
TRIALS = GENERATIONS = 3
TIMEOUT_S = 900.0  # of one command
PORT = "127.0.0.1:7860"
STAYS = ("rookery serve", "rookery mcp")  # until Ctrl-C
KEPT = (". ", "export ")  # what a shell remembers for the next line
OWN_ENVIRONMENT = """
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.wrappers import TimeLimit


class MyEnv(TimeLimit):
    def __init__(self):
        super().__init__(PendulumEnv(), 200)
"""


class Typed(NamedTuple):
    where: str
    command: str
    shown: Shown


class Session:
    def __init__(self, cli: Cli, clone: Path, broker: str = "") -> None:
        self.typed: list[Typed] = []
        self._cli, self._clone, self._broker = cli, clone, broker
        self._kept: list[str] = []
        self._serving: Terminal | None = None
        tools = Path(sys.executable).parent
        self._env = {**cli.environment, "PATH": f"{tools}:{cli.environment['PATH']}"}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        (clone / "my_module.py").write_text(OWN_ENVIRONMENT)

    def page(self, page: str, not_here: dict[str, str]) -> None:
        for fence in fences(page, "", "sh", "python", "yaml"):
            if fence.language == "yaml":
                if "\nsweep:" in fence.text:
                    (self._clone / "sweep.yaml").write_text(fence.text)
                continue
            if fence.language == "python":
                (self._clone / "typed.py").write_text(self._here(fence.text))
                self.type(fence, "python typed.py")
                continue
            for command in commands(fence):
                if command not in not_here:
                    self.type(fence, command)

    def type(self, fence: Fence, command: str) -> None:
        """One command to its end, or, where it stays, until it has said that it is there."""
        if command.startswith(KEPT):
            self._kept.append(self._here(command))
            return
        stays = "exec " if command.startswith(STAYS) else ""  # Ctrl-C meets nobody else
        line = " && ".join([*self._kept, stays + self._here(shortened(command))])
        if command == "rookery serve":
            self.serve(str(fence), line)
            return
        with Terminal(line, self._env, self._clone) as terminal:
            if command.startswith(STAYS):
                terminal.wait_for("Ctrl-C", TIMEOUT_S)
                terminal.idle = True
                shown = terminal.interrupt()
            else:
                shown = terminal.finish(TIMEOUT_S)
        self._note(Typed(str(fence), command, shown))

    def serve(self, where: str = "", line: str = "exec rookery serve") -> None:
        """A server for the rest of the page, and for its $URL and $TOKEN."""
        self._where = where
        self._serving = Terminal(f"{line} --port {self._port}", self._env, self._clone)
        said = self._serving.wait_for("#token=", TIMEOUT_S)
        found = re.search(r"(http://\S+)/#token=(rk_[\w-]+)", said)
        assert found, said
        self._serving.idle = True
        url, token = found.groups()
        self._env |= {"URL": url, "TOKEN": token, "ROOKERY_TOKEN": token}

    def close(self) -> None:
        if self._serving is not None:
            with self._serving as serving:
                self._note(Typed(self._where, "rookery serve", serving.interrupt()))

    def _note(self, typed: Typed) -> None:
        self.typed.append(typed)
        shown = typed.shown
        print(
            f"{typed.where:22} {shown.code:4} {shown.took_s:7.1f} s {shown.silence_s:7.1f} s  "
            f"{typed.command[:90]}" + (f"   ({shown.last[:60]})" if shown.silence_s > 3 else ""),
            flush=True,
        )

    def _here(self, text: str) -> str:
        """With names that a page makes up as they are here."""
        text = text.replace(PORT, f"127.0.0.1:{self._port}")
        for address in ("127.0.0.1:9092", "broker:9092"):
            text = text.replace(address, self._broker or address)
        if re.search(r"\bRUN\b", text):
            newest = self._ask("runs", "show", "last")
            self._env["RUN"] = newest["run"]
            version = (newest["weights_version"] or "0").rpartition(".")[2]
            text = re.sub(r"\bRUN@120\b", f"RUN@{version}", text)
            if "environ" not in text:
                text = re.sub(r"\bRUN\b", newest["run"], text)
        if "1f0c93aa" in text:
            text = text.replace("1f0c93aa", self._ask("tokens", "list")["tokens"][-1]["id"])
        return text

    def _ask(self, *arguments: str) -> Any:
        line = " && ".join([*self._kept, f"rookery {' '.join(arguments)} --json"])
        done = subprocess.run(
            ["sh", "-c", line],
            env=self._env,
            cwd=self._clone,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done
        return json.loads(done.stdout)


def shortened(command: str) -> str:
    if command.startswith("rookery submit"):
        return command.replace("--until-return 475", "--until-return 501")
    if command.startswith("rookery sweep --config"):
        return f"{command} --trials {TRIALS} --seeds 1"
    if not command.startswith(("rookery train", "rookery sweep")):
        return command
    bounded = re.search(r"--(steps|until-return|minutes)\b", command)
    if command.startswith("rookery train") and not bounded:
        return f"{command} --steps {STEPS}"
    for option, most in (("steps", STEPS), ("trials", TRIALS), ("generations", GENERATIONS)):
        command = _at_most(command, option, most)
    return command


def _at_most(command: str, option: str, most: int) -> str:
    return re.sub(rf"--{option} ([\d_]+)", lambda m: f"--{option} {min(most, int(m[1]))}", command)
