"""Pictures as a page can show them, or why there is none."""

from __future__ import annotations

import base64
import io
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from rookery.envs import SeatView
from rookery.envs.registry import make
from rookery.viewing.pictures import MOST_PIXELS, address_of, make_drawn, show


def image_of(address: str) -> tuple[str, Image.Image]:
    head, _, data = address.partition(";base64,")
    return head, Image.open(io.BytesIO(base64.b64decode(data)))


def test_a_drawing_is_a_png_and_keeps_its_pixels() -> None:
    drawn = np.zeros((40, 60, 3), np.uint8)
    drawn[10:20, 5:50] = (200, 30, 90)
    kind, image = image_of(address_of(drawn))
    assert kind == "data:image/png"
    np.testing.assert_array_equal(np.asarray(image), drawn)


def test_a_photograph_is_a_jpeg_and_a_large_picture_is_made_smaller() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (1500, 1200, 3)).astype(np.uint8)
    kind, image = image_of(address_of(noise))
    assert kind == "data:image/jpeg" and max(image.size) == MOST_PIXELS


def test_svg_stays_text() -> None:
    head, _, data = address_of("<svg/>").partition(";base64,")
    assert head == "data:image/svg+xml" and base64.b64decode(data) == b"<svg/>"


@pytest.mark.parametrize(
    ("id", "kind"),
    [
        ("CartPole-v1", "data:image/png"),  # a native vector environment
        ("FrozenLake-v1", "data:image/png"),  # copies
        ("pettingzoo:tictactoe_v3", "data:image/png"),
        ("pgx:tic_tac_toe", "data:image/svg+xml"),
    ],
)
def test_environments_draw_themselves(id: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = make_drawn(id, {"render_mode": "human"} if id == "FrozenLake-v1" else {})
    try:
        views = env.reset(0)
        first = show(env, next(iter(views.values())))
        assert first.address is not None and first.address.startswith(kind) and not first.why
        seat = next(seat for seat, view in views.items() if view.turn is None or view.turn[0])
        actions = {name: np.zeros(1, np.int32) for name in env.spec.seats}
        actions[seat][0] = 1
        for _ in range(12 if id == "CartPole-v1" else 1):  # it moves by less than a pixel
            env.step(actions)
        assert show(env, next(iter(views.values()))).address != first.address
    finally:
        env.close()


def test_one_that_draws_nothing_is_watched_without_pictures() -> None:
    env = make_drawn("rookery.testing.envs:CountingEnv", {"length": 3})
    (view,) = env.reset(0).values()
    shown = show(env, view)
    assert shown.address is None and shown.why.endswith("draws no pictures")


class _Broken:
    spec: Any = type("spec", (), {"id": "broken"})

    def picture(self, slot: int) -> None:
        raise RuntimeError("no display\nat all")


def view_of(leaf: np.ndarray) -> SeatView:
    nothing = np.zeros(1, bool)
    return SeatView({"": leaf[None]}, None, np.zeros(1, np.float32), nothing, nothing, nothing)


def test_a_picture_that_fails_is_told_in_one_line() -> None:
    shown = show(_Broken(), view_of(np.zeros(3)))  # type: ignore[arg-type]
    assert shown == (None, "broken could not be drawn: RuntimeError: no display")


def test_planes_are_drawn_from_what_is_seen() -> None:
    planes = np.zeros((10, 10, 4), np.uint8)
    planes[2, 3, 1] = 1
    shown = show(_Broken(), view_of(planes))  # type: ignore[arg-type]
    assert shown.address is not None
    _, image = image_of(shown.address)
    pixels = np.asarray(image)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) == 2
    side = pixels.shape[0] // 10
    assert (pixels[2 * side, 3 * side] != pixels[0, 0]).any()


def test_a_drawing_that_would_show_other_things_is_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    plain = make("CartPole-v1", 1)
    other = msgspec.structs.replace(plain.spec, seats=make("Acrobot-v1", 1).spec.seats)
    for like, drawn in ((plain.spec, True), (other, False)):
        env = make_drawn("CartPole-v1", {}, like)
        env.reset(0)
        assert (env.picture(0) is not None) == drawn
        env.close()


def test_of_a_stack_of_frames_the_newest_is_shown() -> None:
    frames = np.zeros((1, 84, 84, 4), np.uint8)
    frames[..., 3] = 200
    no = np.zeros(1, np.bool_)
    view = SeatView({"": frames}, None, np.zeros(1, np.float32), no, no, no)
    shown = show(make("rookery.testing.envs:CountingEnv", 1), view)
    assert shown.address is not None
    assert np.asarray(image_of(shown.address)[1]).tolist() == [[200] * 84] * 84
