"""Pictures of an environment as addresses that a page can show.

An environment that draws itself is asked to; one that sees planes of a board or a screen is drawn
from what it sees.
"""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

import numpy as np

from rookery.envs import BatchedEnvironment, Options, Picture, SeatView
from rookery.envs.changes import check_unchanged
from rookery.envs.failures import first_line
from rookery.envs.registry import make
from rookery.errors import RookeryError
from rookery.spaces import EnvironmentSpec

LARGE_BYTES = 96 << 10  # a PNG above this is a photograph, and smaller as a JPEG
MOST_PIXELS = 1024  # on a side
PLANE_PIXELS = 24  # of one square of a board

# Told apart also by people who see few colours: the palette of Okabe and Ito, then greys.
_PLANES = np.array(
    [
        (86, 180, 233),
        (230, 159, 0),
        (0, 158, 115),
        (240, 228, 66),
        (204, 121, 167),
        (213, 94, 0),
        (0, 114, 178),
        (230, 230, 230),
        (150, 150, 150),
        (90, 90, 90),
    ],
    np.uint8,
)


class Shown(NamedTuple):
    address: str | None
    why: str  # there is none


def make_drawn(
    id: str, kwargs: Options, like: EnvironmentSpec | None = None, slots: int = 1
) -> BatchedEnvironment:
    """Slots that can be drawn, where the environment offers it; else such that can't.

    `like`: what it must show to its players. Atari's frames are prepared only where none is drawn.
    """
    plain = {key: value for key, value in kwargs.items() if key != "render_mode"}
    try:
        env = make(id, slots, {**plain, "render_mode": "rgb_array"})
        check_unchanged(like or env.spec, env.spec)
    except RookeryError:  # it knows no such option, lacks what drawing needs, or shows other things
        return make(id, slots, plain)
    return env


def show(env: BatchedEnvironment, view: SeatView, slot: int = 0) -> Shown:
    """A slot as it stands; a picture that can't be had spoils nothing else."""
    why = f"{env.spec.id} draws no pictures"
    try:
        picture = env.picture(slot)
    except Exception as error:  # noqa: BLE001 others' code; the game goes on without pictures
        picture = None
        why = f"{env.spec.id} could not be drawn: {type(error).__name__}: {first_line(error)}"
    if picture is None:
        picture = _seen(view, slot)
    return Shown(None, why) if picture is None else Shown(address_of(picture), "")


def address_of(picture: Picture) -> str:
    if isinstance(picture, str):
        return _address("image/svg+xml", picture.encode())
    from PIL import Image

    image = Image.fromarray(_rgb(picture))
    if max(image.size) > MOST_PIXELS:
        image.thumbnail((MOST_PIXELS, MOST_PIXELS))
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=1)
    if content.tell() <= LARGE_BYTES:
        return _address("image/png", content.getvalue())
    content = io.BytesIO()
    image.save(content, "JPEG", quality=85)
    return _address("image/jpeg", content.getvalue())


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _rgb(picture: np.ndarray) -> np.ndarray:
    found = np.ascontiguousarray(picture, np.uint8)
    return found if found.ndim == 2 else found[..., :3]


def _seen(view: SeatView, slot: int) -> np.ndarray | None:
    """The first leaf that is a screen or a stack of planes."""
    for leaf in view.observation.values():
        seen: np.ndarray = leaf[slot]
        if seen.ndim == 3 and min(seen.shape[:2]) >= 4:
            height, width, depth = seen.shape
            if seen.dtype == np.uint8 and height * width >= 1024:
                return seen if depth == 3 else seen[..., -1]  # of a stack of frames the newest
            if max(height, width) <= 32:
                return _planes(seen)
    return None


def _planes(seen: np.ndarray) -> np.ndarray:
    """A square has the colour of the last plane that is set there."""
    board = np.full((*seen.shape[:2], 3), 24, np.uint8)
    for plane in range(seen.shape[2]):
        board[seen[..., plane] > 0] = _PLANES[plane % len(_PLANES)]
    return board.repeat(PLANE_PIXELS, 0).repeat(PLANE_PIXELS, 1)
