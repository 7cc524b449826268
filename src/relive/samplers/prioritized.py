"""Steps with a large error more often: prioritized experience replay (Schaul et al. 2016, arXiv 1511.05952)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

#: A number, or a function of training progress from 0 to 1.
Schedule: TypeAlias = float | Callable[[float], float]


def is_priority(value: object) -> bool:
    """Whether it is a finite number from 0 on."""
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


class _Weighted:
    """What both variants share: the exponent of the importance weights, which may change while running.

    Attributes:
        progress: how far training is, from 0 to 1; the training loop sets it where ``beta`` is a function.
        dropped: priorities that came for steps that were overwritten meanwhile.
    """

    def __init__(self, alpha: float, beta: Schedule) -> None:
        if not (math.isfinite(alpha) and alpha >= 0):
            raise ValueError(f"alpha is {alpha}, expected a finite number from 0 on (0 is uniform)")
        self._alpha = float(alpha)
        self.beta = beta
        self.progress = 0.0
        self.dropped = 0

    @property
    def alpha(self) -> float:
        """How much priorities count."""
        return self._alpha

    @property
    def beta(self) -> Schedule:
        """How much the importance weights correct; it can be set at any time."""
        return self._beta

    @beta.setter
    def beta(self, beta: Schedule) -> None:
        if not callable(beta) and not (math.isfinite(beta) and beta >= 0):
            raise ValueError(f"beta is {beta}, expected a finite number from 0 on, or a function of progress")
        self._beta = beta

    def beta_now(self) -> float:
        """The exponent of the next draw."""
        return float(self._beta(self.progress)) if callable(self._beta) else float(self._beta)


class Prioritized(_Weighted):
    """Draws step i with probability ``mass_i / sum``, where ``mass = (priority + eps) ** alpha``.

    Batches carry ``weights = (N * P(i)) ** -beta``, scaled to at most 1, and ``handles``, with which priorities go back
    through `ReplayBuffer.update_priorities`. Draws are stratified: one from each of ``batch_size`` equal parts of the
    sum. Where all masses are 0, all steps are alike.

    Args:
        alpha: how much priorities count; 0 is uniform.
        beta: how much the weights correct, or a function of ``progress``.
        eps: added to every priority, so that a step without error is not lost.
        initial: the priority of a new step; "max" takes the largest mass.
        max_over: of "max": of what is "held", or the largest "ever" given.
        weights_over: the largest weight, to which others are scaled, is that of the "batch" or of the "buffer".
    """

    def __init__(
        self,
        alpha: float = 0.6,
        beta: Schedule = 0.4,
        eps: float = 1e-6,
        initial: float | Literal["max"] = "max",
        max_over: Literal["held", "ever"] = "held",
        weights_over: Literal["batch", "buffer"] = "batch",
    ) -> None:
        super().__init__(alpha, beta)
        if not (math.isfinite(eps) and eps >= 0):
            raise ValueError(f"eps is {eps}, expected a finite number from 0 on")
        if initial != "max" and not is_priority(initial):
            raise ValueError(f"initial is {initial!r}, expected 'max' or a finite priority from 0 on")
        if max_over not in ("held", "ever"):
            raise ValueError(f"max_over is {max_over!r}, expected 'held' or 'ever'")
        if weights_over not in ("batch", "buffer"):
            raise ValueError(f"weights_over is {weights_over!r}, expected 'batch' or 'buffer'")
        self.eps = float(eps)
        self.initial = initial
        self.max_over = max_over
        self.weights_over = weights_over


class RankPrioritized(_Weighted):
    """Draws the step of rank i with probability ``(1 / i) ** alpha``, scaled; rank 1 has the largest priority.

    The rank-based variant of the same paper, which outliers do not distort; the order is exact at every draw. New steps
    get the largest priority held, and of equal priorities the newest step comes first.

    Args:
        alpha: how much ranks count; 0 is uniform.
        beta: as in `Prioritized`.
        weights_over: as in `Prioritized`.
    """

    def __init__(
        self, alpha: float = 0.7, beta: Schedule = 0.5, weights_over: Literal["batch", "buffer"] = "batch"
    ) -> None:
        super().__init__(alpha, beta)
        if weights_over not in ("batch", "buffer"):
            raise ValueError(f"weights_over is {weights_over!r}, expected 'batch' or 'buffer'")
        self.weights_over = weights_over
