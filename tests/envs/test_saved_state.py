"""States as named arrays."""

from __future__ import annotations

import numpy as np
import pytest

from rookery.envs.saved_state import check_header, from_text, header_text, to_text
from rookery.errors import InputError


def test_state_text_is_exact_to_type_and_bit() -> None:
    value = {
        "floats": (0.1, np.float32(0.1), np.float64(0.1), float("inf")),
        "array": np.array([[1.5, np.nan]], np.float32),
        "list": [None, True, 1 << 120, np.str_("ace"), np.bool_(False)],
    }
    back = from_text(to_text(value))
    assert repr(back) == repr(value)
    assert [type(x) for x in back["floats"]] == [type(x) for x in value["floats"]]
    assert back["array"].tobytes() == value["array"].tobytes()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="cannot be saved"):
        to_text({"what": object()})


def test_a_state_of_another_environment_is_refused_by_what_differs() -> None:
    state = {"header": header_text({"id": "Maze", "slots": 4})}
    check_header(state, {"id": "Maze", "slots": 4})
    with pytest.raises(InputError, match="not of Maze with 2 slots: its slots is 4, not 2"):
        check_header(state, {"id": "Maze", "slots": 2})
    with pytest.raises(InputError, match="its id is None, not 'Maze'"):
        check_header({}, {"id": "Maze", "slots": 4})
