"""The public buffers."""

from relive.buffers.base import BaseBuffer
from relive.buffers.replay import DictReplayBuffer, ReplayBuffer
from relive.buffers.reservoir import Reservoir
from relive.buffers.rollout import DictRolloutBuffer, RolloutBuffer

__all__ = ["BaseBuffer", "DictReplayBuffer", "DictRolloutBuffer", "ReplayBuffer", "Reservoir", "RolloutBuffer"]
