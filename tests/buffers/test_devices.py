"""Which device batches go to, on machines that have it and on machines that do not."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive
from relive import errors

BOX, DISCRETE = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
CPU = torch.device("cpu")
KINDS = [relive.ReplayBuffer, relive.RolloutBuffer, relive.Reservoir]


def with_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A machine with so many GPUs, as far as torch can tell without using one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def without_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


ABSENT: dict[str, tuple[int, Any, str]] = {
    "cuda where there is none": (0, "cuda", r"device is 'cuda', expected one of this machine: cpu;.*\"auto\""),
    "a numbered one where there is none": (0, "cuda:0", r"device is 'cuda:0', expected one of this machine: cpu;"),
    "a GPU too many": (2, "cuda:7", r"device is 'cuda:7', expected one of this machine: cpu, cuda:0, cuda:1;"),
    "a torch.device": (0, torch.device("cuda"), r"device is 'cuda'"),
    "mps": (1, "mps", r"device is 'mps', expected one of this machine: cpu, cuda:0;"),
    "a backend that is not built in": (0, "hpu", r"device is 'hpu', expected one of this machine: cpu;"),
    "nonsense": (0, "nonsense", r"device is 'nonsense', expected one of this machine: cpu.*torch says: "),
    "no name": (0, "", r"device is '', expected"),
    "a number that is no index": (1, "cuda:x", r"device is 'cuda:x', expected"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ABSENT)
def test_a_device_that_is_not_there_is_refused_at_once(case: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count, device, message = ABSENT[case]
    with_gpus(monkeypatch, count)
    without_mps(monkeypatch)
    with pytest.raises(errors.DeviceError, match=message):
        kind(4, BOX, DISCRETE, device=device)
    buffer = kind(4, BOX, DISCRETE, device="cpu")
    with pytest.raises(errors.DeviceError, match=message):
        buffer.device = device
    assert buffer.device == CPU


@pytest.mark.parametrize("device", [None, 1.5, True, ["cpu"]], ids=str)
def test_what_is_no_name_of_a_device_is_refused(device: Any) -> None:
    with pytest.raises(TypeError, match=r"device is .*expected a torch\.device or a name"):
        relive.ReplayBuffer(4, BOX, DISCRETE, device=device)


@pytest.mark.parametrize(("device", "index"), [("cuda", None), ("cuda:1", 1), (torch.device("cuda", 0), 0)], ids=str)
def test_a_device_that_is_there_is_taken(device: Any, index: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 2)
    assert relive.ReplayBuffer(4, BOX, DISCRETE, device=device).device == torch.device("cuda", index)
    assert relive.ReplayBuffer(4, BOX, DISCRETE).device == torch.device("cuda")


def test_auto_is_the_cpu_where_there_is_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 0)
    assert relive.ReplayBuffer(4, BOX, DISCRETE).device == relive.ReplayBuffer(4, BOX, DISCRETE, "auto").device == CPU


def made_elsewhere(kind: Any, device: str) -> bytes:
    """A pickle of a buffer that was made on a machine with GPUs."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_gpus(monkeypatch, 2)
        buffer = kind(4, BOX, DISCRETE, device=device)
    zero = np.zeros((1, 2), np.float32)
    if isinstance(buffer, relive.RolloutBuffer):
        buffer.add(zero, [1], [0.5], [True], [0.0], [0.0])
    else:
        buffer.add(zero, zero, [1], [0.5], [False])
    return pickle.dumps(buffer)


def reward_drawn(buffer: Any) -> float:
    if isinstance(buffer, relive.RolloutBuffer):
        return float(next(buffer.get(partial=True)).returns.item()) + 0.5
    return float(buffer.sample(1).rewards.item())


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_from_a_machine_with_a_gpu_is_loaded_on_one_without(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = made_elsewhere(kind, "cuda:1")
    with_gpus(monkeypatch, 0)
    without_mps(monkeypatch)
    with pytest.warns(errors.DeviceWarning, match=r"'cuda:1'.*machine: cpu.*go to the CPU.*loaded_onto") as caught:
        buffer = pickle.loads(content)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert buffer.device == CPU
    assert reward_drawn(buffer) == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert copy.deepcopy(buffer).device == copy.copy(buffer).device == CPU
        assert pickle.loads(pickle.dumps(buffer)).device == CPU


def test_the_warning_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    content = made_elsewhere(relive.ReplayBuffer, "cuda")
    with_gpus(monkeypatch, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            pickle.loads(content)
    assert [warning.category for warning in caught] == [errors.DeviceWarning]


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_can_be_chosen_when_loading(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = made_elsewhere(kind, "cuda")
    with_gpus(monkeypatch, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with relive.loaded_onto("meta"):
            assert pickle.loads(content).device == torch.device("meta")
        with relive.loaded_onto("auto"):
            buffer = pickle.loads(content)
    assert buffer.device == CPU
    assert reward_drawn(buffer) == 0.5
    with pytest.raises(errors.DeviceError, match="device is 'cuda'"), relive.loaded_onto("cuda"):
        pass
    with pytest.warns(errors.DeviceWarning):  # the choice ends with its block
        pickle.loads(content)


def test_copies_made_while_loading_keep_their_device() -> None:
    buffer = relive.ReplayBuffer(4, BOX, DISCRETE, device="cpu")
    with relive.loaded_onto("meta"):
        assert copy.deepcopy(buffer).device == CPU


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_a_copy_has_a_device_of_its_own(copied: Callable[[Any], Any]) -> None:
    buffer = relive.ReplayBuffer(4, BOX, DISCRETE, device="meta")
    twin = copied(buffer)
    assert twin.device == torch.device("meta")
    twin.device = "cpu"
    assert buffer.device == torch.device("meta")
