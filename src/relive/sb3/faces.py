"""relive's buffers with the names, defaults, casts and batches of Stable-Baselines3.

They differ from relive's own in three points: ``validate`` is "seed", batches are Stable-Baselines3's named tuples, and
``device="cuda"`` is the CPU where there is no CUDA.
Its abstract bases know them, so every ``isinstance`` and ``issubclass`` in Stable-Baselines3 and around it holds.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common import type_aliases
from stable_baselines3.common.buffers import BaseBuffer as SB3BaseBuffer
from stable_baselines3.common.buffers import DictReplayBuffer as SB3DictReplayBuffer
from stable_baselines3.common.buffers import DictRolloutBuffer as SB3DictRolloutBuffer
from stable_baselines3.common.buffers import ReplayBuffer as SB3ReplayBuffer
from stable_baselines3.common.buffers import RolloutBuffer as SB3RolloutBuffer

import relive.buffers
from relive.buffers.base import require_dict
from relive.buffers.replay import ReplayMethods
from relive.buffers.rollout import RolloutMethods
from relive.sb3 import adopt
from relive.spaces import DTypes


class BaseBuffer(relive.buffers.BaseBuffer):
    """`relive.BaseBuffer` as Stable-Baselines3's ``BaseBuffer``."""

    __module__ = "relive.sb3"
    _takes_cpu_without_cuda = True


class ReplayBuffer(ReplayMethods, BaseBuffer):
    """`relive.ReplayBuffer` as Stable-Baselines3's ``ReplayBuffer``; see there for the arguments."""

    __module__ = "relive.sb3"  # pickles name it so
    _batch_types = (type_aliases.ReplayBufferSamples, type_aliases.DictReplayBufferSamples)  # type: ignore[assignment]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        dtypes: DTypes | None = None,
        validate: Literal["strict", "seed"] = "seed",
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self._set_up(optimize_memory_usage, handle_timeout_termination, dtypes, validate, seed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(self._adopt(state))

    def _adopt(self, state: dict[str, Any]) -> dict[str, Any]:
        """Takes over what Stable-Baselines3's class pickled, and returns the attributes that are left to set."""
        return adopt.replay(self, state) if adopt.is_foreign(state) else state


class DictReplayBuffer(ReplayBuffer):
    """`relive.DictReplayBuffer` as Stable-Baselines3's ``DictReplayBuffer``."""

    __module__ = "relive.sb3"

    def __init__(self, buffer_size: int, observation_space: spaces.Space[Any], *args: Any, **kwargs: Any) -> None:
        require_dict(self, observation_space)
        super().__init__(buffer_size, observation_space, *args, **kwargs)


class RolloutBuffer(RolloutMethods, BaseBuffer):
    """`relive.RolloutBuffer` as Stable-Baselines3's ``RolloutBuffer``; see there for the arguments."""

    __module__ = "relive.sb3"
    _batch_types = (type_aliases.RolloutBufferSamples, type_aliases.DictRolloutBufferSamples)  # type: ignore[assignment]

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        *,
        dtypes: DTypes | None = None,
        validate: Literal["strict", "seed"] = "seed",
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self._set_up(gae_lambda, gamma, dtypes, validate, seed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(self._adopt(state))

    def _adopt(self, state: dict[str, Any]) -> dict[str, Any]:
        """As `ReplayBuffer._adopt`."""
        return adopt.rollout(state) if adopt.is_foreign(state) else state


class DictRolloutBuffer(RolloutBuffer):
    """`relive.DictRolloutBuffer` as Stable-Baselines3's ``DictRolloutBuffer``."""

    __module__ = "relive.sb3"

    def __init__(self, buffer_size: int, observation_space: spaces.Space[Any], *args: Any, **kwargs: Any) -> None:
        require_dict(self, observation_space)
        super().__init__(buffer_size, observation_space, *args, **kwargs)


#: Stable-Baselines3's class → what stands for it.
FACES: dict[type, type] = {
    SB3BaseBuffer: BaseBuffer,
    SB3ReplayBuffer: ReplayBuffer,
    SB3DictReplayBuffer: DictReplayBuffer,
    SB3RolloutBuffer: RolloutBuffer,
    SB3DictRolloutBuffer: DictRolloutBuffer,
}

for _theirs, _face in FACES.items():
    _ours = getattr(relive.buffers, _face.__name__)
    for _class in {_face, _ours}:
        _theirs.register(_class)  # type: ignore[attr-defined]
    if _face is not _ours:
        _ours.register(_face)
