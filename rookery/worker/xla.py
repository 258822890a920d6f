"""XLA's settings, which are read when JAX is imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rookery.errors import InputError

_PLATFORMS = "JAX_PLATFORMS"
_OURS = "ROOKERY_JAX_PLATFORMS"  # says that the other was set here, not by a person


def prepare_xla(threads: int, device: str | None = None) -> None:
    """Size XLA's pool, switch the persistent compile cache on and say what to compute on.

    Before JAX computes anything. `device` is a learner's `learner.device`; whatever else needs JAX
    (an actor, a look at an environment, a viewer) has none, and leaves the GPU to the learner.
    """
    os.environ["NPROC"] = str(threads)
    cache = compile_cache_dir()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    _choose(device)


def _choose(device: str | None) -> None:
    if os.environ.pop(_OURS, None):
        del os.environ[_PLATFORMS]  # it was meant for another process, or for a look
    if device == "cpu" or (device is None and _PLATFORMS not in os.environ):
        os.environ[_PLATFORMS], os.environ[_OURS] = "cpu", "1"
    if "jax" in sys.modules:  # which has read it already
        import jax

        jax.config.update("jax_platforms", os.environ.get(_PLATFORMS))  # type: ignore[no-untyped-call]


def device_used(wanted: str) -> str:
    """What JAX computes on here, like `cpu` or `gpu (NVIDIA L4)`."""
    import jax

    try:
        found = jax.devices()[0]
    except (RuntimeError, AssertionError) as error:  # the latter where it lacks a plugin
        raise InputError(
            f"JAX has nothing here for {_PLATFORMS}={os.environ.get(_PLATFORMS, '')}: unset it, or "
            "set learner.device to cpu"
        ) from error
    if wanted == "gpu" and found.platform == "cpu":
        raise InputError(
            "learner.device=gpu, but JAX sees no GPU here: install its build for one, like "
            "pip install 'jax[cuda12]', or set learner.device to auto"
        )
    same = found.device_kind == found.platform
    return found.platform if same else f"{found.platform} ({found.device_kind})"


def compile_cache_dir() -> Path:
    chosen = os.environ.get("ROOKERY_COMPILE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rookery" / "xla"
