"""Which device batches go to: whether this machine has it, and what becomes of it where it does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from relive.errors import DeviceError, DeviceWarning

_onto: ContextVar[torch.device | None] = ContextVar("_onto", default=None)


def usable(device: torch.device | str | int, *, cpu_without_cuda: bool = False) -> torch.device:
    """A device that this machine has.

    Args:
        device: a torch device, its name or the index of a GPU; "auto" is CUDA where there is one, else the CPU.
        cpu_without_cuda: CUDA devices become the CPU where there is no CUDA at all, as in Stable-Baselines3.

    Raises:
        DeviceError: this machine does not have it, or there is no such device.
        TypeError: it is no name of a device.
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if isinstance(device, bool) or not isinstance(device, torch.device | str | int):
        raise TypeError(f'device is {device!r}, expected a torch.device or a name such as "auto", "cpu" or "cuda:0"')
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        raise DeviceError(
            f"device is {device!r}, {_expectation()} (torch says: {str(error).splitlines()[0]})"
        ) from None
    if cpu_without_cuda and parsed.type == "cuda" and not torch.cuda.is_available():
        return torch.device("cpu")
    if not _is_here(parsed):
        raise DeviceError(f"device is {str(parsed)!r}, {_expectation()}")
    return parsed


class Place:
    """A device as a buffer keeps it. It can be unpickled on a machine that does not have the device."""

    __slots__ = ("device",)

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __reduce__(self) -> tuple[Callable[[str], Place], tuple[str]]:
        return restored, (str(self.device),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Place:
        return self


def restored(device: str) -> Place:
    """The device of a buffer that is loaded: that of `loaded_onto`, its own, or the CPU with a `DeviceWarning`."""
    onto = _onto.get()
    if onto is not None:
        return Place(onto)
    try:
        return Place(usable(device))
    except DeviceError as error:
        warnings.warn(
            f"a buffer was loaded whose {error}. Its batches go to the CPU from now on; assign buffer.device to change "
            "that, or load it within relive.loaded_onto(device)",
            DeviceWarning,
            stacklevel=2,
        )
        return Place(torch.device("cpu"))


@contextmanager
def loaded_onto(device: torch.device | str) -> Iterator[None]:
    """Buffers that are unpickled in this block give their batches to ``device``, whatever device they had.

    Raises:
        DeviceError: this machine does not have it.

    Example:
        >>> import pickle
        >>> from gymnasium import spaces
        >>> from relive import ReplayBuffer
        >>> content = pickle.dumps(ReplayBuffer(100, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), device="meta"))
        >>> with loaded_onto("cpu"):
        ...     buffer = pickle.loads(content)
        >>> buffer.device
        device(type='cpu')
    """
    token = _onto.set(usable(device))
    try:
        yield
    finally:
        _onto.reset(token)


def _is_here(device: torch.device) -> bool:
    if device.type in ("cpu", "meta"):
        return True
    if device.type == "cuda":
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    if device.type == "mps":
        return torch.backends.mps.is_available()
    try:
        torch.empty(0, device=device)
    except Exception:  # whatever a backend raises that is not there
        return False
    return True


def _expectation() -> str:
    """What this machine has."""
    here = ["cpu"]
    if torch.cuda.is_available():
        here += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        here.append("mps")
    return f'expected one of this machine: {", ".join(here)}; "auto" is CUDA where there is one, else the CPU'
