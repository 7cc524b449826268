"""``next_observations`` is computed when it is read, and indexes as the NumPy array that it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import relive

ROWS, LANES = 5, 3
SHAPES = {"vector": (4,), "image": (2, 3), "scalar": ()}


def filled(shape: tuple[int, ...]) -> relive.ReplayBuffer:
    space = spaces.Box(-np.inf, np.inf, shape, np.float32)
    buffer = relive.ReplayBuffer(ROWS * LANES, space, spaces.Discrete(2), device="cpu", n_envs=LANES)
    rng = np.random.default_rng(0)
    obs = rng.random((ROWS + 2, LANES, *shape)).astype(np.float32)
    following = np.where(rng.random((ROWS + 2, LANES, *[1] * len(shape))) < 0.5, np.roll(obs, -1, 0), -obs)
    zeros = np.zeros((ROWS + 2, LANES))
    buffer.extend(obs, following, zeros.astype(int), zeros, zeros)
    buffer.expected = np.concatenate([following[-2:], following[2:-2]])  # type: ignore[attr-defined]
    return buffer


INDICES: dict[str, Any] = {
    "everything": (),
    "ellipsis": ...,
    "a row": 2,
    "a row from the end": -1,
    "NumPy integer": np.int64(3),
    "one place": (2, 1),
    "one place from the end": (-1, -2),
    "rows": slice(1, 4),
    "every other row backwards": slice(None, None, -2),
    "no rows": slice(3, 3),
    "a lane": (slice(None), 1),
    "rows and lanes": (slice(0, 3), slice(1, None)),
    "list of rows": [0, 3, 3],
    "array of rows": np.array([[0, 1], [4, -1]]),
    "no rows at all": np.array([], int),
    "places": (np.array([0, 1, 4]), np.array([2, 0, 1])),
    "places, broadcast": (np.array([[0], [4]]), np.array([2, 0])),
    "rows of one lane": (np.array([0, 1, 4]), 2),
    "rows of some lanes": (np.array([0, 1]), slice(0, 2)),
    "mask of rows": np.array([True, False, True, True, False]),
    "mask of places": np.arange(ROWS * LANES).reshape(ROWS, LANES) % 2 == 0,
    "list of booleans": [True, False, True, True, False],
    "new axis": None,
    "new axis between": (slice(None), None, 1),
    "a boolean": True,
    "places and all the rest": (np.array([0, 1]), np.array([1, 2]), ...),
    "ellipsis and last axis": (..., 0),
}
WITH_ITEM_AXIS: dict[str, Any] = {
    "colon after places": (np.array([0, 1]), np.array([1, 2]), slice(None)),
    "part of an item": (slice(None), 0, 1),
    "slice of an item": (1, slice(None), slice(0, 1)),
    "three arrays": (np.array([0, 1]), np.array([1, 2]), np.array([0, 1])),
    "arrays around a slice": (np.array([0, 1]), slice(None), np.array([0, 1])),
}


@pytest.mark.parametrize("index", INDICES | WITH_ITEM_AXIS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_indexing_is_numpys(index: str, shape: tuple[int, ...]) -> None:
    if index in WITH_ITEM_AXIS and not shape:
        index = "everything"
    key = (INDICES | WITH_ITEM_AXIS)[index]
    buffer = filled(shape)
    expected = buffer.expected[key]
    got = buffer.next_observations[key]
    assert np.shape(got) == expected.shape
    assert np.asarray(got).dtype == expected.dtype
    assert np.array_equal(got, expected)


@pytest.mark.parametrize(
    "index", [ROWS, -ROWS - 1, (0, LANES), (0, -LANES - 1), [0, ROWS], (np.array([0]), np.array([LANES]))]
)
def test_an_index_out_of_bounds_raises_as_numpys(index: Any) -> None:
    with pytest.raises(IndexError):
        filled((4,)).next_observations[index]


@pytest.mark.parametrize("index", [1.5, "a", (0, 0, 0, 0, 0), np.zeros(4, bool)])
def test_what_is_no_index_raises_as_numpys(index: Any) -> None:
    with pytest.raises(IndexError):
        filled((4,)).next_observations[index]


def test_it_turns_into_an_array_and_is_described_as_one() -> None:
    buffer = filled((4,))
    array = buffer.next_observations
    assert np.array_equal(np.asarray(array), buffer.expected)
    assert np.asarray(array, np.float64).dtype == np.float64
    assert (array.shape, array.ndim, array.size, len(array)) == ((5, 3, 4), 3, 60, 5)
    assert array.dtype == np.float32
    assert array.nbytes == 0
    assert [row.tolist() for row in array] == buffer.expected.tolist()
    assert "shape=(5, 3, 4)" in repr(array)
    assert np.array_equal(array - buffer.expected, np.zeros((5, 3, 4)))


def test_what_comes_out_is_a_copy() -> None:
    buffer = filled((4,))
    buffer.next_observations[0][...] = 9
    np.asarray(buffer.next_observations)[...] = 9
    assert np.array_equal(buffer.next_observations, buffer.expected)


def test_items_cannot_be_assigned() -> None:
    with pytest.raises(TypeError, match=r"buffer\.next_observations = values"):
        filled((4,)).next_observations[0] = 1


def test_it_cannot_be_had_without_a_copy() -> None:
    with pytest.raises(ValueError, match="copy"):
        filled((4,)).next_observations.__array__(copy=False)
