"""Where a buffer's random draws come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive import _native

# NumPy has it since 1.24, but its own stubs do not know it.
_global_bit_generator: Callable[[], Any] = getattr(np.random, "get_bit_generator")  # noqa: B009


class Stream:
    """A source of draws: NumPy's global generator for ``seed=None``, else a private one.

    The global generator is asked for at every draw, since ``numpy.random.set_bit_generator`` can swap it; with it,
    draws are those of the seed module after the same ``numpy.random.seed``. A private generator is pickled with its
    state.

    Args:
        seed: None, an int from 0 on, or a ``numpy.random.Generator``, which is then shared with the caller.
    """

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        if seed is not None and not isinstance(seed, int | np.integer | np.random.Generator):
            raise TypeError(f"seed is {seed!r}, expected None, an int or a numpy.random.Generator")
        self.__setstate__((None if seed is None else np.random.default_rng(seed),))

    def below(self, bound: int, size: int) -> NDArray[np.int64]:
        """``size`` integers in ``[0, bound)``: the draws of ``numpy.random.randint(0, bound, size)``."""
        return _native.draw_below(bound, size, self.native)

    def permutation(self, size: int) -> NDArray[np.int64]:
        """The integers below ``size`` in random order: for the global generator, ``numpy.random.permutation``."""
        return np.random.permutation(size) if self.generator is None else self.generator.permutation(size)

    def __getstate__(self) -> tuple[np.random.Generator | None]:
        return (self.generator,)

    def __setstate__(self, state: tuple[np.random.Generator | None]) -> None:
        (generator,) = state
        self.generator = generator
        #: What the native core draws from, under the generator's own lock.
        self.native = (
            _native.Stream(_global_bit_generator, True)
            if generator is None
            else _native.Stream(generator.bit_generator, False)
        )
