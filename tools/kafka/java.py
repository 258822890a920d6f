"""The JVM that a Kafka node runs in: found, sized for tests, and gone when its starter is gone.

A JVM spends most of its start on loading classes. The first node that is stopped in good order
leaves an archive of them beside the jars, and later ones start in half the time.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from rookery.errors import InputError
from tools.kafka.jars import KAFKA_VERSION, jars

OLDEST_JAVA = 17
# Quick to start and small, rather than quick after an hour.
FLAGS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOGGING = (
    "-Dlog4j2.level=INFO",
    "-Dlog4j2.shutdownHookEnabled=false",  # or the log ends before the node does
    *("-Xlog:disable", "-Xlog:all=error:stderr"),
)
# Dies with its parent, whatever kills that; then becomes the program it was given.
END_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def find_java() -> Path:
    """The `java` of JAVA_HOME, or else of PATH, that is new enough for Kafka."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates.append("java")
    seen = []
    for candidate in candidates:
        program = shutil.which(candidate)
        if program is None:
            continue
        version = java_version(Path(program))
        if int(version.split(".")[0]) >= OLDEST_JAVA:
            return Path(program)
        seen.append(f"{program} is Java {version}")
    raise InputError(
        f"Kafka needs Java {OLDEST_JAVA} or newer, and {', '.join(seen) or 'there is none'}: "
        "apt install default-jre-headless, or set JAVA_HOME"
    )


def java_version(program: Path) -> str:
    """As `17.0.15`; `0` when the program does not say."""
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([\d.]+)', said.stderr)
    return found[1] if found else "0"


@dataclass(frozen=True)
class Runtime:
    """Java together with the jars of one version of Kafka."""

    java: Path
    jars: Path
    archive: Path  # of loaded classes; need not exist

    @classmethod
    def find(cls, version: str = KAFKA_VERSION) -> Runtime:
        java = find_java()
        place = jars(version)
        return cls(java, place, place / f"java-{java_version(java)}.jsa")

    def command(self, main: str, *arguments: str, draft: Path | None = None) -> list[str]:
        """Run a class of the jars; with a draft, its loaded classes are archived there at exit."""
        classes = [f"-XX:ArchiveClassesAtExit={draft}"] if draft else []
        if self.archive.exists():
            classes = [f"-XX:SharedArchiveFile={self.archive}"]
        return [str(self.java), *FLAGS, *LOGGING, *classes, main, *arguments]

    def draft(self) -> Path | None:
        """Where the next node may write an archive, if there is none yet."""
        return None if self.archive.exists() else self.archive.with_suffix(f".{uuid4().hex}")

    @property
    def environment(self) -> Mapping[str, str]:
        """Sorted, because an archive is only good for the class path it was made with."""
        return {
            **os.environ,
            "CLASSPATH": os.pathsep.join(map(str, sorted(self.jars.glob("*.jar")))),
        }


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    keep: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that writes to the log; it ends with us unless it is to keep a descriptor.

    Linux sends the signal when the thread that started the child ends, so all of them are started
    by one thread that ends last. Elsewhere than on Linux a killed parent leaves it behind.
    """
    if sys.platform == "linux" and keep is None:
        command = [sys.executable, "-I", "-S", "-c", END_WITH_PARENT, str(os.getpid()), *command]

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the parent, which stops its children
                pass_fds=() if keep is None else (keep,),
            )

    return _spawner().submit(start).result()


@functools.cache
def _spawner() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="kafka-spawner")
