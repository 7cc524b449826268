"""The named tuples that draws return: the seed's fields, in the seed's order."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch

#: A tensor, or for Dict and Tuple spaces a dict or tuple of tensors in the same nesting.
TensorTree: TypeAlias = Any


class ReplayBufferSamples(NamedTuple):
    """Transitions.

    Attributes:
        observations: ``(batch, *shape)`` in the space's dtype.
        actions: ``(batch, action_dim)`` in the space's dtype, float32 for float64 spaces.
        next_observations: as ``observations``, what was seen after the step.
        dones: ``(batch, 1)`` float32, 1 where the episode terminated (time limits do not count).
        rewards: ``(batch, 1)`` float32.
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
        actions: ``(batch, action_dim)`` float32.
        old_values: ``(batch,)`` float32, as the three that follow.
        old_log_prob: of the actions under the policy that took them.
        advantages: see `RolloutBuffer.compute_returns_and_advantage`.
        returns: advantages plus values.
    """

    observations: torch.Tensor
    actions: torch.Tensor
    old_values: torch.Tensor
    old_log_prob: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


class DictRolloutBufferSamples(NamedTuple):
    """A minibatch of a rollout over a Dict observation space."""

    observations: TensorTree
    actions: torch.Tensor
    old_values: torch.Tensor
    old_log_prob: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
