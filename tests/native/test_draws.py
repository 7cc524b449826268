"""Native index drawing is ``numpy.random.randint``, bit for bit and state for state."""

from __future__ import annotations

import numpy as np
import pytest

from relive import _native
from relive.randomness import Stream

BOUNDS = [
    1,
    2,
    3,
    5,
    255,
    256,
    257,
    1000,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**32 + 1,
    2**40,
    2**62,
    2**63 - 1,
]


def draw(bound: int, size: int) -> np.ndarray:
    return _native.draw_below(bound, size, Stream(None).native)


@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.PCG64, np.random.Philox, np.random.SFC64])
@pytest.mark.parametrize("bound", BOUNDS)
def test_draws_are_those_of_randint(bound: int, bits: type) -> None:
    for size in (0, 1, 7, 1000):
        np.random.set_bit_generator(bits(size))
        expected, then = np.random.randint(0, bound, size, dtype=np.int64), np.random.random()
        np.random.set_bit_generator(bits(size))
        got = draw(bound, size)
        assert got.dtype == np.int64
        assert got.tolist() == expected.tolist()
        assert np.random.random() == then


def test_a_bound_of_one_consumes_nothing() -> None:
    np.random.seed(0)
    before = np.random.get_state()[1:3]
    assert draw(1, 100).tolist() == [0] * 100
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state()[1:3], before, strict=True))


def test_no_bound_and_no_generator_are_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        draw(0, 3)
    with pytest.raises(TypeError):
        draw(-1, 3)
    for source in (None, 3, np.random.get_bit_generator()):
        with pytest.raises(TypeError):
            _native.draw_below(3, 3, source)
    for source in (None, 3):
        with pytest.raises((TypeError, AttributeError)):
            _native.draw_below(3, 3, _native.Stream(source, True))
