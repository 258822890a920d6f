"""A run's files that may be fetched: checkpoints, snapshots, videos, logs, games and pictures.

Nothing outside the run's own directory is ever named or opened, and no link is followed out of it.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from rookery.control.files import files_in
from rookery.control.models import Artifact, Artifacts
from rookery.errors import UnknownName

FOLDERS = ("checkpoints", "snapshots", "videos", "logs", "games")
PICTURES = ".png"
MOST = 10_000  # that one answer lists


def list_artifacts(directory: Path) -> Artifacts:
    found = []
    for path, status in files_in(directory):
        name = path.relative_to(directory).as_posix()
        if is_offered(name):
            found.append(Artifact(path=name, bytes=status.st_size, modified_s=status.st_mtime))
        if len(found) == MOST:
            break
    return Artifacts(artifacts=sorted(found, key=lambda artifact: artifact.path))


def is_offered(name: str) -> bool:
    """Whether a path inside a run's directory is one that may be fetched."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or "\0" in name:
        return False
    if any(part.startswith(".") for part in path.parts):
        return False  # .. and what is still being written
    if len(path.parts) == 1:
        return path.suffix == PICTURES
    return path.parts[0] in FOLDERS


def find_artifact(directory: Path, name: str) -> Path:
    """The file behind a path; one line for whatever is not offered."""
    refused = UnknownName("artifact", name[:200], (), "see the list of artifacts")
    if not is_offered(name):
        raise refused
    root = directory.resolve()
    try:
        path = (root / name).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # not there, not readable, or a loop of links
        raise refused from None
    inside = path.is_relative_to(root) and is_offered(path.relative_to(root).as_posix())
    if not inside or not path.is_file():
        raise refused
    return path
