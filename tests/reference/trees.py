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


class Ranked:
    """Slots with a priority and a number; every question sorts them anew."""

    def __init__(self) -> None:
        self.keys: dict[int, tuple[float, int]] = {}

    def order(self) -> list[int]:
        """Largest priority first; of equal ones the larger number, then the larger slot."""
        return sorted(self.keys, key=lambda slot: (*self.keys[slot], slot), reverse=True)

    def max_priority(self) -> float:
        return max((priority for priority, _ in self.keys.values()), default=0.0)


def rank_probabilities(alpha: float, n: int) -> NDArray[np.float64]:
    """P(rank i of n) ~ (1 / i) ** alpha, i from 1 (Schaul et al. 2016, section 3.3)."""
    weights = [(1.0 / i) ** alpha for i in range(1, n + 1)]
    return np.array(weights) / math.fsum(weights)
