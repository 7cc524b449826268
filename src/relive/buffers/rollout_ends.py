"""How the steps of a rollout ended, and so where advantages bootstrap and where they stop."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.errors import EpisodeStartError, FinalValueError

Array = NDArray[Any]


class RolloutEnds:
    """How the steps of a rollout ended, where they were added with ``terminated`` and ``truncated``.

    Attributes:
        ended: ``(steps, n_envs)``: the episode ended there, either way.
        bootstraps: ``(steps, n_envs)``: it was cut, so the value of the last observation counts.
        final_values: ``(steps, n_envs)``: that value, NaN where it is not known (yet); read where it bootstraps.
        valid: ``(steps, n_envs)``: False for rows that are no steps.
        known: steps were added in this form.
        masked: some rows are no steps.
    """

    def __init__(self, steps: int, n_envs: int) -> None:
        self.ended = np.zeros((steps, n_envs), bool)
        self.bootstraps = np.zeros((steps, n_envs), bool)
        self.final_values = np.zeros((steps, n_envs), np.float32)
        self.valid = np.broadcast_to(np.True_, (steps, n_envs))  # takes no memory as long as nothing is masked
        self.known = False
        self.masked = False
        self._newest = np.full(n_envs, -1)  # the row of each environment's newest step, where ends are known

    @property
    def nbytes(self) -> int:
        """Bytes of what is used of it."""
        ends = (self.ended, self.bootstraps, self.final_values) if self.known else ()
        return sum(array.nbytes for array in ends) + self.masked * self.valid.size

    def mask_out(self, row: int, active: Array) -> None:
        """Notes which environments took a step in a row."""
        if not self.masked and not active.all():
            self.valid, self.masked = self.valid.copy(), True
        if self.masked:
            self.valid[row] = active

    def awaiting(self, row: int) -> NDArray[np.bool_]:
        """Environments whose step before a row was truncated without a final value: the row's own value is that one."""
        if row == 0 or not self.known:
            return np.zeros(self.ended.shape[1], bool)
        lacking: NDArray[np.bool_] = self.bootstraps[row - 1] & np.isnan(self.final_values[row - 1])
        return lacking

    def check(self, row: int, active: Array | None, values: Array) -> None:
        """Refuses a row after a truncated step whose final value is not known and does not become known by it."""
        if row == 0 or not self.known or not self.bootstraps[row - 1].any():
            return
        lacking = self.awaiting(row)
        if active is not None:
            lacking &= active | ~np.isfinite(values)
        if lacking.any():
            env = int(np.flatnonzero(lacking)[0])
            step = (
                f"step {row - 1} of environment {env} was truncated and has no final_value, expected the value of its "
            )
            if active is None or active[env]:
                raise FinalValueError(
                    step + "last observation; pass it with the step, or mask out the reset row that follows (mask=)"
                )
            raise FinalValueError(
                step + f"last observation as value of the reset row that follows, got {values[env]}; pass it there, or "
                "as final_value with the step"
            )

    def reconcile(self, row: int, starts: NDArray[np.bool_], *, strict: bool) -> None:
        """Settles what ``episode_start`` says against how the steps before were said to have ended.

        A start that is not said after an end is no contradiction: whoever says ends need not say starts. One that
        is said where the newest step did not end is; where not ``strict`` that step ended, as for the seed.

        Args:
            row: which comes next.
            starts: ``(n_envs,)``: the row's step is one, and was said to be the first of its episode.
            strict: refuse.

        Raises:
            EpisodeStartError: a contradiction; nothing was changed.
        """
        if row == 0 or not self.known or not starts.any():
            return
        envs = np.flatnonzero(starts & (self._newest >= 0))
        envs = envs[~self.ended[self._newest[envs], envs]]
        if not len(envs):
            return
        if strict:
            raise EpisodeStartError(
                f"episode_start says that step {row} of environments {envs.tolist()} begins an episode, but their "
                f"steps before (in rows {self._newest[envs].tolist()}) came as neither terminated nor truncated, "
                "expected an end before a start; say terminated=True or truncated=True with the step that ends an "
                "episode, also where a reset from outside cuts it, or pass False for episode_start if it goes on; "
                "where episodes can end while an environment sits out, say ends by episode_start and dones alone"
            )
        self.ended[self._newest[envs], envs] = True

    def set(
        self, row: int, terminated: Array, truncated: Array, final_value: Array | None, active: Array | None
    ) -> None:
        """Notes how the steps of a row ended."""
        self._same_form(row, True)
        if row == 0:
            self._newest[:] = -1
        self.ended[row] = terminated | truncated
        self.bootstraps[row] = cut = truncated & ~terminated
        if cut.any():
            self.final_values[row] = np.where(cut, np.nan if final_value is None else final_value, 0)
        self._newest[... if active is None else active] = row

    def set_seed_form(self, row: int) -> None:
        """Notes that a row came in the seed's form, where ``episode_start`` of the next row says it."""
        self._same_form(row, False)

    def _same_form(self, row: int, known: bool) -> None:
        if row > 0 and known != self.known:
            raise TypeError(
                "add got terminated and truncated for some steps of this rollout only, expected one form for all"
            )
        self.known = known

    def bootstrapped(self, rewards: Array, values: Array, last_values: Array, gamma: float) -> Array:
        """Rewards with the discounted value of the last observation added where an episode was cut."""
        steps = len(rewards)
        rows, envs = np.nonzero(self.bootstraps[:steps])
        if not len(rows):
            return rewards
        final = self.final_values[rows, envs]
        lacking = np.flatnonzero(np.isnan(final))
        if len(lacking):  # NEXT_STEP autoreset: the reset row holds the value
            after = np.concatenate([values[1:], last_values[None]])
            final[lacking] = after[rows[lacking], envs[lacking]]
        out: Array = rewards.copy()
        out[rows, envs] += np.float32(gamma) * final
        return out
