"""Stable-Baselines3 on relive's buffers.

Change one import of your own code::

    from relive.sb3 import ReplayBuffer          # was: from stable_baselines3.common.buffers import ReplayBuffer

pass a class to an algorithm::

    model = SAC("MlpPolicy", env, replay_buffer_class=relive.sb3.ReplayBuffer)

or swap the classes inside Stable-Baselines3 and sb3-contrib, for all algorithms of the process::

    relive.sb3.install()

Each way, the same seed ends with the same parameters as Stable-Baselines3's own buffers, bit for bit. Replay buffers
that Stable-Baselines3 pickled are read by `load_replay_buffer`, which runs no code of the file.

All names that user code imports from ``stable_baselines3.common.buffers`` are here. Stable-Baselines3's own
``NStepReplayBuffer`` and ``HerReplayBuffer`` and sb3-contrib's ``RecurrentRolloutBuffer``, ``MaskableRolloutBuffer``
and their Dict forms are here too, on these bases; they are made when first asked for.
"""

from __future__ import annotations

from typing import Any

import psutil
from gymnasium import spaces

try:
    from stable_baselines3.common.preprocessing import get_action_dim, get_obs_shape
except ModuleNotFoundError as error:
    if error.name != "stable_baselines3":
        raise
    raise ModuleNotFoundError(
        "relive.sb3 needs Stable-Baselines3, which is not installed: pip install 'relive[sb3]'", name=error.name
    ) from None
from stable_baselines3.common.type_aliases import (
    DictReplayBufferSamples,
    DictRolloutBufferSamples,
    ReplayBufferSamples,
    RolloutBufferSamples,
)
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecNormalize

from relive.errors import ForeignPickleError
from relive.sb3.faces import BaseBuffer, DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer
from relive.sb3.legacy import load_replay_buffer
from relive.sb3.rebase import HOMES, rebased
from relive.sb3.swap import install, installed, uninstall

__all__ = [
    "BaseBuffer",
    "ReplayBuffer",
    "DictReplayBuffer",
    "RolloutBuffer",
    "DictRolloutBuffer",
    "install",
    "installed",
    "uninstall",
    "load_replay_buffer",
    "ForeignPickleError",
    # as stable_baselines3.common.buffers has them
    "DictReplayBufferSamples",
    "DictRolloutBufferSamples",
    "ReplayBufferSamples",
    "RolloutBufferSamples",
    "VecNormalize",
    "get_action_dim",
    "get_device",
    "get_obs_shape",
    "psutil",
    "spaces",
]


def __getattr__(name: str) -> Any:
    # The modules of these classes import stable_baselines3.common.buffers, and may be importing this one: only
    # asking for a class may load its module.
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return rebased(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
