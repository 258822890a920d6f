"""What JAX computes on is JAX's choice or a person's, and only the learner may have the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import pytest

from rookery.errors import InputError
from rookery.worker.xla import device_used, prepare_xla


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Neither the environment nor JAX's settings of this process are left changed."""
    before = jax.config.jax_platforms  # type: ignore[attr-defined]
    for name in ("JAX_PLATFORMS", "ROOKERY_JAX_PLATFORMS", "CUDA_HOME", "NPROC"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield
    jax.config.update("jax_platforms", before)


@pytest.mark.parametrize(("device", "found"), [("auto", None), ("gpu", None), ("cpu", "cpu")])
def test_a_learner_leaves_the_choice_to_jax_unless_it_is_told(
    monkeypatch: pytest.MonkeyPatch, device: str, found: str | None
) -> None:
    monkeypatch.setenv("CUDA_HOME", "/usr/local/cuda")
    prepare_xla(1)  # a look at the environment, by whoever starts it: it inherits this
    assert os.environ["JAX_PLATFORMS"] == "cpu"
    prepare_xla(1, device)
    assert os.environ.get("JAX_PLATFORMS") == found
    assert jax.config.jax_platforms == found  # type: ignore[attr-defined]


def test_what_a_person_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "rocm")
    for device in (None, "auto", "gpu"):
        prepare_xla(1, device)
        assert os.environ["JAX_PLATFORMS"] == "rocm"


def test_what_is_used_is_said_and_a_gpu_that_is_not_there_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Card:
        platform, device_kind = "gpu", "NVIDIA L4"

    assert device_used("auto") == "cpu"
    with pytest.raises(InputError, match=r"learner\.device=gpu, but JAX sees no GPU here"):
        device_used("gpu")
    monkeypatch.setattr(jax, "devices", lambda: [Card()])
    assert device_used("gpu") == "gpu (NVIDIA L4)"


def test_a_platform_that_jax_lacks_is_told_in_one_line() -> None:
    code = "from rookery.worker.xla import *; prepare_xla(1, 'auto'); device_used('auto')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAX_PLATFORMS": "cuda"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "JAX has nothing here for JAX_PLATFORMS=cuda: unset it, or " in last
