"""relive: the experience store for reinforcement learning."""

from importlib.metadata import version as _version

from relive import errors, returns
from relive.batches import (
    DictReplayBufferSamples,
    DictRolloutBufferSamples,
    ReplayBufferSamples,
    RolloutBufferSamples,
)
from relive.buffers import BaseBuffer, DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, RolloutBuffer
from relive.errors import ReliveError
from relive.storage import Memory
from relive.timeline import Bytes

__version__ = _version("relive")

__all__ = [
    "BaseBuffer",
    "Bytes",
    "DictReplayBuffer",
    "DictReplayBufferSamples",
    "DictRolloutBuffer",
    "DictRolloutBufferSamples",
    "Memory",
    "ReliveError",
    "ReplayBuffer",
    "ReplayBufferSamples",
    "RolloutBuffer",
    "RolloutBufferSamples",
    "__version__",
    "errors",
    "returns",
]
