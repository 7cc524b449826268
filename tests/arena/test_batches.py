"""Batch memory is used again, and never while anything still looks at it."""

from __future__ import annotations

import gc
import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import relive


def filled(shape: tuple[int, ...] = (5,), rows: int = 64) -> relive.ReplayBuffer:
    """A buffer whose fields all hold the step's number."""
    buffer = relive.ReplayBuffer(
        rows, gym.spaces.Box(-1e6, 1e6, shape, np.float32), gym.spaces.Box(-1e6, 1e6, (2,), np.float32), "cpu", seed=0
    )
    for number in range(rows):
        obs = np.full(shape, number, np.float32)
        buffer.add(obs, obs + 1, np.full(2, number, np.float32), float(number), terminated=False, truncated=False)
    return buffer


def fields(batch: Any) -> list[torch.Tensor]:
    return [batch.observations, batch.actions, batch.next_observations, batch.dones, batch.rewards]


def spans(tensors: list[torch.Tensor]) -> Iterator[tuple[int, int]]:
    for tensor in tensors:
        yield tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


def assert_disjoint(tensors: list[torch.Tensor]) -> None:
    ordered = sorted(spans(tensors))
    for (_, end), (start, _) in itertools.pairwise(ordered):
        assert end <= start, "two live tensors share memory"


HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "the tensor": lambda t: t,
    "a slice of it": lambda t: t[1:3],
    "a transposed view": lambda t: t.t(),
    "a NumPy view": lambda t: t.numpy(),
    "its detached twin": lambda t: t.detach(),
    "a DLPack import": torch.from_dlpack,
}


def read(held: Any) -> np.ndarray:
    return np.array(held if isinstance(held, np.ndarray) else held.numpy())


@pytest.mark.parametrize("shape", [(5,), (40, 40, 40)], ids=["shared block", "block of its own"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_what_is_held_is_never_written_again(shape: tuple[int, ...], holder: str) -> None:
    buffer = filled(shape, rows=16)
    held = HOLDERS[holder](buffer.sample(8).observations.reshape(8, -1))
    before = read(held)
    for _ in range(50):
        buffer.sample(8)
    assert np.array_equal(before, read(held))


def test_autograd_keeps_what_it_saved() -> None:
    buffer = filled()
    weight = torch.ones(5, 1, requires_grad=True)
    observations = buffer.sample(16).observations
    expected = observations.sum(0)[:, None].clone()
    loss = (observations @ weight).sum()  # saves the observations for the backward pass
    del observations
    for _ in range(50):
        buffer.sample(16)
    loss.backward()
    assert torch.equal(weight.grad, expected)


def test_no_block_lies_in_two_live_batches() -> None:
    buffer = filled()
    choose = random.Random(0)
    live: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(400):
        drawn = fields(buffer.sample(choose.choice([1, 7, 32, 5000])))
        live += [(tensor, tensor.clone()) for tensor in drawn if choose.random() < 0.5]
        del drawn
        choose.shuffle(live)
        del live[choose.randrange(40) :]
        assert_disjoint([tensor for tensor, _ in live])
    assert all(torch.equal(tensor, copy) for tensor, copy in live)


def test_memory_is_used_again_once_a_batch_is_gone() -> None:
    buffer = filled((40, 40, 40), rows=8)
    addresses = {buffer.sample(4).observations.data_ptr() for _ in range(100)}
    assert len(addresses) <= 2


def test_one_field_kept_does_not_keep_a_large_one() -> None:
    buffer = filled((40, 40, 40), rows=8)
    kept = [buffer.sample(4).rewards for _ in range(50)]
    image_bytes = 4 * 40 * 40 * 40 * 4
    assert buffer._timeline.core.arena_bytes() < 10 * image_bytes
    assert_disjoint(kept)


def test_idle_memory_is_capped() -> None:
    buffer = filled()
    for size in (1_000_000, 800_000, 600_000, 400_000, 200_000, 1000):
        buffer.sample(size)
    buffer.sample(500_000)
    assert buffer._timeline.core.arena_bytes() < 4 * 500_000 * 64


def test_every_field_has_a_version_counter_of_its_own() -> None:
    batch = filled().sample(8)
    versions = [tensor._version for tensor in fields(batch)]
    batch.observations.add_(1)
    assert [tensor._version for tensor in fields(batch)] == [versions[0] + 1, *versions[1:]]


def test_a_batch_outlives_its_buffer() -> None:
    buffer = filled()
    batch = buffer.sample(32)
    copies = [tensor.clone() for tensor in fields(batch)]
    del buffer
    gc.collect()
    other = filled()
    for _ in range(20):
        other.sample(32)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(fields(batch), copies, strict=True))


def test_the_batch_is_the_callers_to_write_to() -> None:
    buffer = filled()
    stored = buffer.observations.copy()
    for tensor in fields(buffer.sample(32)):
        tensor.fill_(-1)
    assert np.array_equal(buffer.observations, stored)


def test_threads_draw_and_drop_without_sharing() -> None:
    buffer = filled((64, 64, 16), rows=16)  # large enough for draws to leave the interpreter's lock
    faults: list[str] = []

    def draw(seed: int) -> None:
        choose = random.Random(seed)
        live: list[tuple[torch.Tensor, torch.Tensor]] = []
        for _ in range(60):
            batch = buffer.sample(4)
            live.append((batch.observations, batch.observations.clone()))
            if choose.random() < 0.7:
                live.pop(choose.randrange(len(live)))
            if not all(torch.equal(tensor, copy) for tensor, copy in live):
                faults.append("a live batch was written to")

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_live_batches_at_the_end_of_the_interpreter_do_no_harm() -> None:
    code = (
        "import gymnasium as gym, numpy as np, relive\n"
        "box = gym.spaces.Box(-1, 1, (30000,), np.float32)\n"
        "buffer = relive.ReplayBuffer(4, box, gym.spaces.Discrete(2), 'cpu')\n"
        "buffer.add(np.zeros(30000), np.ones(30000), 1, 0.0, False)\n"
        "keep = [buffer.sample(4) for _ in range(3)]\n"
        "import builtins; builtins.kept_for_ever = keep\n"
        "print('end')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "end"), done.stderr
