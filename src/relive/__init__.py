"""relive: the experience store for reinforcement learning."""

from importlib.metadata import version as _version

from relive import errors, returns
from relive.batches import (
    DictReplayBufferSamples,
    DictRolloutBufferSamples,
    Episode,
    ReplayBufferSamples,
    RolloutBufferSamples,
    SequenceSamples,
)
from relive.buffers import BaseBuffer, DictReplayBuffer, DictRolloutBuffer, ReplayBuffer, Reservoir, RolloutBuffer
from relive.devices import loaded_onto
from relive.errors import ReliveError
from relive.limits import RateLimiter
from relive.mixture import Mixture, mix
from relive.prefetch import BatchStream
from relive.samplers import Constant, Linear, Prioritized, RankPrioritized, Uniform
from relive.storage import Memory
from relive.timeline import Bytes
from relive.views import Hindsight

__version__ = _version("relive")

__all__ = [
    "BaseBuffer",
    "BatchStream",
    "Bytes",
    "Constant",
    "DictReplayBuffer",
    "DictReplayBufferSamples",
    "DictRolloutBuffer",
    "DictRolloutBufferSamples",
    "Episode",
    "Hindsight",
    "Linear",
    "Memory",
    "Mixture",
    "Prioritized",
    "RankPrioritized",
    "RateLimiter",
    "ReliveError",
    "ReplayBuffer",
    "ReplayBufferSamples",
    "Reservoir",
    "RolloutBuffer",
    "RolloutBufferSamples",
    "SequenceSamples",
    "Uniform",
    "__version__",
    "errors",
    "loaded_onto",
    "mix",
    "returns",
]
