"""The slow, obvious twin of prioritised draws: a dict from handle to mass, and formulas from the papers.

Schaul et al. 2016 (arXiv 1511.05952) for masses, ranks and importance weights; Kapturowski et al. 2019 for sequences.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mass(priority: float, alpha: float, eps: float) -> float:
    """At least the smallest normal number, unless the priority is 0."""
    largest, smallest = sys.float_info.max, sys.float_info.min
    if priority + eps == 0:
        return 1.0 if alpha == 0 else 0.0
    logarithm = alpha * math.log(priority + eps)
    if logarithm > math.log(largest):
        return math.inf
    return max(float((priority + eps) ** alpha), smallest)


def is_too_large(priority: float, alpha: float, eps: float, capacity: int) -> bool:
    """Whether a buffer full of such steps would have no finite sum with room to spare."""
    return mass(priority, alpha, eps) > sys.float_info.max / 2 / capacity


def probabilities(masses: Sequence[float]) -> NDArray[np.float64]:
    """Proportional to mass; where all masses are zero, equal."""
    array = np.asarray(masses, np.float64)
    return array / array.sum() if array.sum() else np.full(len(array), 1 / len(array))


def rank_probabilities(priorities: Sequence[float], ages: Sequence[int], alpha: float) -> NDArray[np.float64]:
    """Of steps with these priorities; of equal ones that with the smallest age ranks first."""
    order = sorted(range(len(priorities)), key=lambda i: (-priorities[i], ages[i]))
    p = np.empty(len(order))
    for rank, i in enumerate(order, start=1):
        p[i] = (1 / rank) ** alpha
    return p / p.sum()


def weights(of_all: ArrayLike, drawn: Sequence[int], beta: float, over: str = "batch") -> NDArray[np.float64]:
    """Importance weights of drawn steps, scaled so that the largest is one.

    Args:
        of_all: the probability of every eligible step.
        drawn: indices into it.
        beta: how much of the bias is corrected.
        over: "batch" or "buffer": where the largest is looked for.
    """
    p = np.asarray(of_all, np.float64)
    raw = np.array([(len(p) * p[i]) ** -beta for i in drawn])
    largest = raw.max() if over == "batch" else max((len(p) * q) ** -beta for q in p if q > 0)
    return raw / largest


def sequence_priority(td_errors: Sequence[float], eta: float) -> float:
    absolute = np.abs(np.asarray(td_errors, np.float64))
    return float(eta * absolute.max() + (1 - eta) * absolute.mean())


class Masses:
    """The mass of every step held.

    Args:
        alpha, eps: the mass of a priority p is (p + eps) ** alpha.
        initial: "max", or the priority of every new step.
        max_over: "held" or "ever".
    """

    def __init__(self, alpha: float, eps: float, initial: str | float = "max", max_over: str = "held") -> None:
        self.alpha, self.eps, self.initial, self.max_over = alpha, eps, initial, max_over
        self.of: dict[int, float] = {}
        self.largest_ever = 0.0
        self.dropped = 0

    def entry(self) -> float:
        """The mass that a new step gets now."""
        if self.initial != "max":
            return mass(float(self.initial), self.alpha, self.eps)
        largest = self.largest_ever if self.max_over == "ever" else max(self.of.values(), default=0.0)
        return largest or mass(1.0, self.alpha, self.eps)

    def follow(self, held: Iterable[int]) -> None:
        """These are held now: what was overwritten is gone, and the new ones of one call all enter alike."""
        held = set(held)
        self.of = {handle: value for handle, value in self.of.items() if handle in held}
        entry = self.entry()
        for handle in held - set(self.of):
            self.of[handle] = entry
            self.largest_ever = max(self.largest_ever, entry)

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> int:
        """Of equal handles the last wins; returns how many are not held."""
        stale = [handle for handle in handles if handle not in self.of]
        for handle, priority in zip(handles, priorities, strict=True):
            if handle in self.of:
                self.of[handle] = mass(priority, self.alpha, self.eps)
                self.largest_ever = max(self.largest_ever, self.of[handle])
        self.dropped += len(stale)
        return len(stale)
