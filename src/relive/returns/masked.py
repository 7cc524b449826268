"""Rollouts in which some rows are no steps: the estimators see the real steps alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class RealSteps:
    """The real steps of every lane, moved together to its end.

    An estimator goes backwards, from what was seen after the newest step. So it needs no word about rows that are no
    steps: before a lane's real steps there is room, whose results nobody reads.

    Args:
        valid: ``(steps, n_envs)`` booleans, False for rows that are no steps.
    """

    def __init__(self, valid: NDArray[np.bool_]) -> None:
        self._valid = valid
        self._order = np.argsort(valid, axis=0, kind="stable")  # the rows that are none come first

    def gathered(self, array: Array) -> Array:
        """``(steps, n_envs)`` by rows as the same by real steps."""
        return np.take_along_axis(array, self._order, axis=0)

    def scatter(self, by_steps: Array, out: Array) -> None:
        """Writes what was found by real steps into ``out``, by rows; 0 where there is no step."""
        np.put_along_axis(out, self._order, by_steps, axis=0)
        out[~self._valid] = 0

    def starts(self, episode_starts: Array, dones: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Episode starts by real steps, and which newest steps ended their episode.

        A flag on a row that is no step is one of the next step: a loop that hands on the flags of the step before sets
        it on the row of the reset.

        Args:
            episode_starts: ``(steps, n_envs)``, by rows.
            dones: ``(n_envs,)``.
        """
        flags = np.cumsum((episode_starts > 0) & ~self._valid, axis=0)
        passed = self.gathered(flags)
        starts = self.gathered(episode_starts).astype(np.float32)
        starts[1:] = np.maximum(starts[1:], passed[1:] > passed[:-1])
        return starts, np.maximum(dones, flags[-1] > passed[-1]).astype(np.float32)
