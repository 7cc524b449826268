"""Slow, obvious twins of the structures behind prioritized draws."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class SumTree:
    """Masses in an array; every question is answered by going through all of them."""

    def __init__(self, capacity: int) -> None:
        self.masses: NDArray[np.float64] = np.zeros(capacity)

    def set_many(self, indices: Iterable[int], masses: Iterable[float]) -> None:
        for index, mass in zip(indices, masses, strict=True):
            self.masses[index] = mass

    def total(self) -> float:
        return math.fsum(self.masses)

    def max(self) -> float:
        return float(self.masses.max())

    def min_positive(self) -> float:
        return min((float(mass) for mass in self.masses if mass > 0), default=math.inf)

    def find(self, mass: float) -> int:
        """The first leaf with a prefix sum above ``mass``; else the last one with a mass, else leaf 0."""
        found = 0
        prefix = 0.0
        for leaf, held in enumerate(self.masses):
            prefix += float(held)
            if held > 0:
                found = leaf
                if prefix > mass:
                    break
        return found
