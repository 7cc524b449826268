"""The named tuples that draws return: the seed's fields, in the seed's order."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

#: A tensor, or for Dict and Tuple spaces a dict or tuple of tensors in the same nesting.
TensorTree: TypeAlias = Any


class ReplayBufferSamples(NamedTuple):
    """Transitions.

    Attributes:
        observations: ``(batch, *shape)`` in the space's dtype.
        actions: ``(batch, action_dim)`` in the space's dtype, float32 for float64 spaces.
        next_observations: as ``observations``, what was seen after the step.
        dones: ``(batch, 1)`` float32, 1 where the episode terminated (time limits do not count).
        rewards: ``(batch, 1)`` float32, or ``(batch, k)`` for vector rewards.
        discounts: ``(batch, 1)`` of n-step returns, else None.
    """

    observations: torch.Tensor
    actions: torch.Tensor
    next_observations: torch.Tensor
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None = None


class DictReplayBufferSamples(NamedTuple):
    """Transitions of a Dict observation space: as `ReplayBufferSamples`, with dicts of tensors for observations."""

    observations: TensorTree
    actions: torch.Tensor
    next_observations: TensorTree
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None = None


class RolloutBufferSamples(NamedTuple):
    """A minibatch of a rollout.

    Attributes:
        observations: ``(batch, *shape)`` in the space's dtype.
        actions: ``(batch, action_dim)`` float32; integers that float32 would round keep their dtype, and Dict and Tuple
            actions are nested tensors.
        old_values: ``(batch,)`` float32, as the three that follow.
        old_log_prob: of the actions under the policy that took them.
        advantages: see `RolloutBuffer.compute_returns_and_advantage`.
        returns: advantages plus values.
    """

    observations: torch.Tensor
    actions: TensorTree
    old_values: torch.Tensor
    old_log_prob: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


class DictRolloutBufferSamples(NamedTuple):
    """A minibatch of a rollout over a Dict observation space."""

    observations: TensorTree
    actions: TensorTree
    old_values: torch.Tensor
    old_log_prob: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


class SequenceSamples(NamedTuple):
    """Runs of steps, see `ReplayBuffer.sample_sequences`.

    They also have the attributes ``weights`` (``(batch, 1)``, or None), ``handles`` (``(batch,)`` of the first steps,
    NumPy), ``extras`` (declared fields, ``(batch, time, *shape)``), ``states`` (the fields asked for with ``states=``,
    ``(batch, *shape)``) and ``relabelled`` (``(batch,)`` bool, NumPy, or None).

    Attributes:
        observations: ``(batch, time, *shape)``.
        actions: ``(batch, time, action_dim)``.
        next_observations: as ``observations``.
        dones: ``(batch, time, 1)`` float32.
        rewards: ``(batch, time, 1)`` float32, or ``(batch, time, k)`` for vector rewards.
        discounts: ``(batch, time, 1)`` of n-step returns, else None.
        mask: ``(batch, time)`` bool: which steps are real; all else is zero.
        is_first: ``(batch, time)`` bool: which steps begin an episode.
        burn_in: ``(batch, time)`` bool: which real steps only warm a recurrent state up.
    """

    observations: TensorTree
    actions: torch.Tensor
    next_observations: TensorTree
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None
    mask: torch.Tensor
    is_first: torch.Tensor
    burn_in: torch.Tensor


class Episode(NamedTuple):
    """An episode, or the piece of one that is held: NumPy arrays of ``T`` steps.

    Attributes:
        observations: ``(T, *shape)``, nested as the space is.
        actions: ``(T, action_dim)``.
        next_observations: as ``observations``.
        rewards: ``(T,)`` or ``(T, k)`` float32.
        dones: ``(T,)`` float32, as they were added.
        timeouts: ``(T,)`` float32: which ends are time limits.
        handles: ``(T,)`` int64.
        extras: declared fields, ``(T, *shape)``.
        interrupted: the stream was cut after the last step.
    """

    observations: Any
    actions: Any
    next_observations: Any
    rewards: NDArray[np.float32]
    dones: NDArray[np.float32]
    timeouts: NDArray[np.float32]
    handles: NDArray[np.int64]
    extras: dict[str, NDArray[Any]]
    interrupted: bool

    @property
    def terminated(self) -> bool:
        """It ended in a terminal state."""
        return bool(self.dones[-1] and not self.timeouts[-1])

    @property
    def truncated(self) -> bool:
        """It was ended by a time limit, or cut from outside."""
        return bool(self.timeouts[-1]) or (self.interrupted and not self.terminated)

    @property
    def is_finished(self) -> bool:
        """It has ended, for whatever reason."""
        return self.terminated or self.truncated
