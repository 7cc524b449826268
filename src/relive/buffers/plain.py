"""Replay over plain arrays, for subclasses in the wild that skip `ReplayBuffer.__init__` and bring arrays of their own.

They call ``super(ReplayBuffer, self).__init__(buffer_size, observation_space, action_space, device, n_envs)``, assign
``observations``, ``next_observations``, ``actions``, ``rewards``, ``dones`` and ``timeouts``, and may rely on the
inherited ``add`` and ``sample``. This is the seed's own way of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from relive.batches import ReplayBufferSamples
from relive.infos import TIMEOUT_KEY

if TYPE_CHECKING:
    from relive.buffers.replay import ReplayMethods


def add(buffer: ReplayMethods, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
    """Writes one step at ``buffer.pos``."""
    if isinstance(buffer.observation_space, spaces.Discrete):
        obs, next_obs = (np.reshape(part, (buffer.n_envs, *buffer.obs_shape)) for part in (obs, next_obs))
    row = buffer.pos
    buffer.observations[row] = obs
    buffer.next_observations[row] = next_obs
    buffer.actions[row] = np.reshape(action, (buffer.n_envs, buffer.action_dim))
    buffer.rewards[row] = reward
    buffer.dones[row] = done
    if getattr(buffer, "handle_timeout_termination", True) and infos is not None:
        buffer.timeouts[row] = [info.get(TIMEOUT_KEY, False) for info in infos]
    buffer.full = buffer.full or row + 1 == buffer.buffer_size
    buffer.pos = (row + 1) % buffer.buffer_size


def get_samples(buffer: Any, rows: NDArray[np.int64], lanes: NDArray[np.int64], env: Any) -> ReplayBufferSamples:
    """The transitions at these places."""
    dones = buffer.dones[rows, lanes]
    if "timeouts" in buffer.__dict__:
        dones = dones * (1 - buffer.timeouts[rows, lanes])
    batch: ReplayBufferSamples = buffer._batch_types[0](
        observations=buffer.to_torch(buffer._normalize_obs(buffer.observations[rows, lanes], env)),
        actions=buffer.to_torch(buffer.actions[rows, lanes]),
        next_observations=buffer.to_torch(buffer._normalize_obs(buffer.next_observations[rows, lanes], env)),
        dones=buffer.to_torch(dones.reshape(-1, 1)),
        rewards=buffer.to_torch(buffer._normalize_reward(buffer.rewards[rows, lanes].reshape(-1, 1), env)),
    )
    return batch
