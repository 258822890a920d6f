"""XLA's settings, which are read when JAX is imported."""

from __future__ import annotations

import os
from pathlib import Path


def prepare_xla(threads: int) -> None:
    """Size XLA's pool and switch the persistent compile cache on; before JAX is imported."""
    os.environ["NPROC"] = str(threads)
    cache = compile_cache_dir()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu,cuda" if os.environ.get("CUDA_HOME") else "cpu")


def compile_cache_dir() -> Path:
    chosen = os.environ.get("ROOKERY_COMPILE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rookery" / "xla"
