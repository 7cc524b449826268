"""What all buffers share: the seed's `BaseBuffer`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from relive import inputs
from relive.buffers.usual import UsualCalls
from relive.devices import Place, usable
from relive.errors import WrongSpaceError
from relive.randomness import Stream
from relive.spaces import action_dim, obs_shape


class BaseBuffer(ABC):
    """The frame of a buffer: spaces, sizes, device, position.

    Args:
        buffer_size: how many steps it can hold.
        observation_space: space of the observations.
        action_space: space of the actions.
        device: where batches go; "auto" is CUDA where there is one, else the CPU.
        n_envs: how many environments add steps side by side.

    Raises:
        DeviceError: this machine does not have ``device``.

    Attributes:
        obs_shape: shape of a stored observation; for Dict and Tuple spaces the same nesting of shapes.
        action_dim: numbers of an action.
        pos: the row that is written next.
        full: whether every row was written.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    obs_shape: Any
    action_dim: Any
    pos: int
    full: bool
    _takes_cpu_without_cuda = False
    _usual: UsualCalls | None = None  # the usual calls of a replay buffer; None: to be bound

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
    ) -> None:
        super().__init__()
        if n_envs < 1:
            raise ValueError(f"n_envs is {n_envs}, expected at least 1")
        if buffer_size < 0:
            raise ValueError(f"buffer_size is {buffer_size}, expected 0 or more (0 holds one step per environment)")
        self.buffer_size = int(buffer_size)
        self.observation_space = observation_space
        self.action_space = action_space
        self.obs_shape = obs_shape(observation_space)
        self.action_dim = action_dim(action_space)
        self.pos = 0
        self.full = False
        self.device = device
        self.n_envs = int(n_envs)

    @property
    def device(self) -> torch.device:
        """Where batches go; it can be set at any time, also to a string.

        Raises:
            DeviceError: when set to a device that this machine does not have.
        """
        return self._place.device

    @device.setter
    def device(self, device: torch.device | str) -> None:
        if self._takes_cpu_without_cuda and "_place" in self.__dict__ and isinstance(device, torch.device):
            self._place = Place(device)  # Stable-Baselines3 looks at it at construction only; its loading assigns one
        else:
            self._place = Place(usable(device, cpu_without_cuda=self._takes_cpu_without_cuda))
        self._usual = None

    @staticmethod
    def swap_and_flatten(arr: NDArray[Any]) -> NDArray[Any]:
        """``(steps, n_envs, ...)`` as ``(steps * n_envs, ...)``, one environment after the other."""
        shape = arr.shape if arr.ndim > 2 else (*arr.shape, 1)
        flat: NDArray[Any] = arr.swapaxes(0, 1).reshape(shape[0] * shape[1], *shape[2:])
        return flat

    def size(self) -> int:
        """Rows held, which is steps per environment."""
        return self.buffer_size if self.full else self.pos

    @property
    def num_transitions(self) -> int:
        """Steps held, of all environments together."""
        return self.size() * self.n_envs

    @property
    def lane_sizes(self) -> NDArray[np.int64]:
        """Steps held of each environment, ``(n_envs,)``."""
        return np.full(self.n_envs, self.size(), np.int64)

    def __len__(self) -> int:
        return self.num_transitions

    def __bool__(self) -> bool:
        # Code written for the seed asks `if buffer:` to know whether there is one; that must not turn on its content.
        return True

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Adds one step of every environment."""
        raise NotImplementedError(f"{type(self).__name__} does not define add")

    def extend(self, *args: Any, **kwargs: Any) -> int | None:
        """Adds many steps: each argument has a leading axis of steps, and `add` is called on every one."""
        for data in zip(*args, strict=True):
            self.add(*data)
        return None

    def reset(self) -> None:
        """Empties the buffer."""
        self.pos = 0
        self.full = False

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """A batch of uniformly drawn rows, with replacement.

        Args:
            batch_size: how many.
            env: normalises observations and rewards of the batch, see `ReplayBuffer.sample`.
        """
        return self._get_samples(self._stream_or_global().below(self.size(), batch_size), env=env)

    @abstractmethod
    def _get_samples(self, batch_inds: NDArray[np.int64], env: Any = None) -> Any:
        """The batch of these rows."""

    def to_torch(self, array: NDArray[Any], copy: bool = True) -> torch.Tensor:
        """A tensor on the buffer's device.

        Args:
            array: any NumPy array.
            copy: False shares the array's memory where the device is the CPU.
        """
        if copy:
            return torch.tensor(array, device=self.device)
        return torch.as_tensor(array, device=self.device)

    @staticmethod
    def _normalize_obs(obs: Any, env: Any = None) -> Any:
        return obs if env is None else env.normalize_obs(obs)

    @staticmethod
    def _normalize_reward(reward: NDArray[Any], env: Any = None) -> NDArray[Any]:
        if env is None:
            return reward
        return inputs.as_array(env.normalize_reward(reward), "what normalize_reward returned").astype(np.float32)

    def _stream_or_global(self) -> Stream:
        """The buffer's stream; a subclass that skipped its parent's constructor has none and uses the global one."""
        stream: Stream = self.__dict__.get("_stream") or Stream(None)
        return stream


def require_dict(buffer: BaseBuffer, space: spaces.Space[Any]) -> None:
    """Refuses an observation space other than Dict, in the seed's words.

    Raises:
        WrongSpaceError: it is another one.
    """
    name = type(buffer).__name__
    if not isinstance(space, spaces.Dict):
        raise WrongSpaceError(
            f"{name} must be used with Dict obs space only; got {type(space).__name__}, use {name.removeprefix('Dict')}"
        )
