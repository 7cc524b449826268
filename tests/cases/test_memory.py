"""Memory: cases of public reports, which each test names."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

import relive
from relive.buffers.memory_check import warn_if_too_large
from tests.cases.chains import ACTION, NUMBER, held, replay

GB = 10**9


def machine(monkeypatch: pytest.MonkeyPatch, total: float, available: float) -> None:
    memory = SimpleNamespace(total=total, available=available)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def test_M02_more_than_the_machine_has_is_told_in_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLR-RM/stable-baselines3#37, #1839, tensorflow/agents#800."""
    machine(monkeypatch, total=32 * GB, available=30 * GB)
    with pytest.warns(relive.errors.MemoryWarning, match=r"50\.00GB.*32\.00GB"):
        warn_if_too_large(50 * GB)


def test_M02_more_than_is_available_now_is_a_warning_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLR-RM/stable-baselines3#37, #1839, tensorflow/agents#800."""
    machine(monkeypatch, total=64 * GB, available=5 * GB)
    with pytest.warns(relive.errors.MemoryWarning, match=r"20\.00GB.*5\.00GB of 64\.00GB"):
        warn_if_too_large(20 * GB)


def test_M02_a_buffer_that_fits_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLR-RM/stable-baselines3#37, #1839, tensorflow/agents#800."""
    machine(monkeypatch, total=1 * GB, available=1 * GB)
    replay(1000)


def test_M02_the_buffer_says_what_it_takes_when_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLR-RM/stable-baselines3#37, #1839, tensorflow/agents#800."""
    machine(monkeypatch, total=100_000, available=100_000)
    with pytest.warns(relive.errors.MemoryWarning, match="memory") as caught:
        buffer = replay(1_000_000)
    assert f"{buffer.nbytes.reserved / 1e9:.2f}GB" in str(caught[0].message)
    assert buffer.nbytes.reserved >= buffer.observations.nbytes + buffer.actions.nbytes + 3 * buffer.rewards.nbytes
    assert caught[0].filename.endswith("chains.py")  # where the buffer was made, not inside relive


def test_M02_pages_are_filled_lazily() -> None:
    """DLR-RM/stable-baselines3#37, #1839, tensorflow/agents#800."""
    buffer = replay(10_000_000)
    before = psutil.Process().memory_info().rss
    for _ in range(10):
        buffer.add([0], [1], 0, 0.0, False)
    assert psutil.Process().memory_info().rss - before < 50e6
    assert buffer.nbytes.reserved > 1e8
    assert buffer.nbytes.touched < 1e5


class Token:
    """Lives as long as the node of the graph that it is hung on."""


def node_of(tensor: torch.Tensor) -> weakref.ref[Token]:
    token = Token()
    assert tensor.grad_fn is not None
    tensor.grad_fn.metadata["token"] = token
    return weakref.ref(token)


def test_M03_tensors_are_stored_detached_and_let_go() -> None:
    """recursionpharma/gflownet PR #130, Kaixhin/Rainbow PR #33, oxwhirl/pymarl PR #73."""
    buffer = replay(4)
    weight = torch.ones(1, requires_grad=True)
    for _ in range(3):
        obs, reward = (weight * 3).reshape(1, 1), weight.sum().reshape(1)
        alive = [weakref.ref(obs), weakref.ref(reward), node_of(obs), node_of(reward)]
        buffer.add(obs, obs, torch.zeros(1, dtype=torch.int64), reward, torch.zeros(1))
        del obs, reward
        assert [ref() for ref in alive] == [None] * 4
    assert held(buffer)[0] == (3, 3)
    assert not buffer.sample(2).observations.requires_grad


def test_M03_rollouts_keep_no_graph_of_values() -> None:
    """recursionpharma/gflownet PR #130, Kaixhin/Rainbow PR #33, oxwhirl/pymarl PR #73."""
    rollout = relive.RolloutBuffer(1, NUMBER, ACTION, device="cpu")
    value = torch.ones(1, requires_grad=True) * 2
    alive = node_of(value)
    rollout.add(np.zeros((1, 1), np.float32), np.zeros(1, int), np.zeros(1), np.zeros(1), value, value)
    del value
    assert alive() is None
    assert rollout.values.item() == 2


@pytest.mark.cuda
def test_M03_gpu_memory_stays_flat() -> None:
    """recursionpharma/gflownet PR #130, Kaixhin/Rainbow PR #33, oxwhirl/pymarl PR #73."""
    buffer = relive.ReplayBuffer(100, NUMBER, ACTION, device="cuda")
    weight = torch.ones(1, 1, device="cuda", requires_grad=True)

    def add(count: int) -> int:
        for _ in range(count):
            obs = weight * 3
            buffer.add(obs, obs, [0], obs.sum().reshape(1), [False])
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    after_ten = add(10)
    assert add(10_000) == after_ten
    batch = buffer.sample(3)
    assert batch.observations.device.type == "cuda"
    assert batch.observations.flatten().tolist() == [3, 3, 3]
    assert not batch.observations.requires_grad
