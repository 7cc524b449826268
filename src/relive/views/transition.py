"""The one-step view: the fields that the core gathers for drawn steps, as the batch that the caller gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from gymnasium import spaces

from relive.batches import DictReplayBufferSamples, ReplayBufferSamples
from relive.timeline import Timeline

Samples = ReplayBufferSamples | DictReplayBufferSamples
#: The named tuples for observations of one array or a Tuple, and of a Dict.
BatchTypes: TypeAlias = tuple[type[ReplayBufferSamples], type[DictReplayBufferSamples]]


def batch(timeline: Timeline, fields: Sequence[torch.Tensor], types: BatchTypes) -> Samples:
    """The named tuple of these fields: observation leaves, action leaves, successor leaves, dones, rewards."""
    if timeline.is_plain:
        return types[0](*fields)
    kind = types[1] if isinstance(timeline.observation.space, spaces.Dict) else types[0]
    return kind(*split(timeline, fields))


def split(timeline: Timeline, fields: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any]:
    """Observation, action, next observation, dones, rewards, each nested as its space is."""
    observation, action = timeline.observation, timeline.action
    first = len(observation.leaves)
    second = first + len(action.leaves)
    return (
        observation.unflatten(fields[:first]),
        action.unflatten(fields[first:second]),
        observation.unflatten(fields[second : second + first]),
        fields[-2],
        fields[-1],
    )


def join(timeline: Timeline, obs: Any, action: Any, next_obs: Any, dones: Any, rewards: Any) -> tuple[Any, ...]:
    """The fields again: the inverse of `split`."""
    observation = timeline.observation
    parts = (*observation.flatten(obs), *timeline.action.flatten(action), *observation.flatten(next_obs))
    return (*parts, dones, rewards)
