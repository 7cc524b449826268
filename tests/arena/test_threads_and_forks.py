"""Adds and draws are atomic: no torn step, whoever calls; a forked child goes on by itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
import torch

import relive

# Large enough for adds and draws to leave the interpreter's lock, so that they really run side by side.
SHAPE = (3, 64, 64, 4)


def counting_buffer(n_envs: int = 2, rows: int = 16) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(
        rows * n_envs,
        gym.spaces.Box(-1e9, 1e9, SHAPE, np.float32),
        gym.spaces.Box(-1e9, 1e9, (300,), np.float32),
        "cpu",
        n_envs=n_envs,
    )


def add_number(buffer: relive.ReplayBuffer, number: int) -> None:
    """One counter in all fields, so that a torn step shows."""
    lanes = buffer.n_envs
    obs = np.full((lanes, *SHAPE), number, np.float32)
    buffer.add(
        obs,
        obs + 0.5,
        np.full((lanes, 300), number, np.float32),
        np.full(lanes, number, np.float32),
        terminated=np.zeros(lanes, bool),
        truncated=np.zeros(lanes, bool),
    )


def is_whole(batch: relive.ReplayBufferSamples) -> bool:
    # In NumPy: torch's own threads do not survive a fork, and a child that needs them hangs.
    numbers = batch.rewards.numpy().reshape(-1, 1)
    size = len(numbers)
    return bool(
        (batch.observations.numpy().reshape(size, -1) == numbers).all()
        and (batch.actions.numpy() == numbers).all()
        and (batch.next_observations.numpy().reshape(size, -1) == numbers + 0.5).all()
    )


def test_two_writers_and_two_readers_see_no_torn_step() -> None:
    buffer = counting_buffer()
    add_number(buffer, 0)
    stop = threading.Event()
    torn: list[str] = []
    drawn = [0, 0]

    def write(start: int) -> None:
        number = start
        while not stop.is_set():
            add_number(buffer, number)
            number += 2

    def read(which: int) -> None:
        while not stop.is_set():
            if not is_whole(buffer.sample(6)):
                torn.append("torn")
            drawn[which] += 1

    threads = [threading.Thread(target=write, args=(start,)) for start in (1, 2)]
    threads += [threading.Thread(target=read, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    stop.set()
    for thread in threads:
        thread.join()
    assert not torn
    assert min(drawn) > 10


def test_draws_of_one_private_stream_from_many_threads_are_all_valid() -> None:
    buffer = relive.ReplayBuffer(
        100, gym.spaces.Box(-1e9, 1e9, (4,), np.float32), gym.spaces.Discrete(3), "cpu", seed=0
    )
    for number in range(100):
        obs = np.full(4, number, np.float32)
        buffer.add(obs, obs + 1, number % 3, float(number), False)
    wrong: list[str] = []

    def draw() -> None:
        for _ in range(500):
            batch = buffer.sample(32)
            if not torch.equal(batch.observations, batch.rewards.expand(-1, 4)):
                wrong.append("mixed")

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def in_child(work: object, seconds: float = 60) -> int:
    """The exit status of ``work()`` in a forked child: 0 for True."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)  # type: ignore[operator]
        except BaseException:
            os._exit(2)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1  # it hangs


forks = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="the system has no safe fork")


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_and_its_parent_draw_apart() -> None:
    buffer = counting_buffer()
    for number in range(40):
        add_number(buffer, number)
    kept = buffer.sample(4).observations.numpy()
    copy = kept.copy()

    def child() -> bool:
        mine = buffer.sample(4).observations.numpy()
        before = mine.copy()
        add_number(buffer, 1000)
        for _ in range(10):
            buffer.sample(4)
        return np.array_equal(mine, before) and np.array_equal(kept, copy)

    assert in_child(child) == 0
    for _ in range(10):
        buffer.sample(4)
    assert np.array_equal(kept, copy)
    assert int(buffer.rewards.max()) == 39, "the child's add is its own"


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_others_add_and_draw_leaves_no_lock_and_no_torn_step() -> None:
    buffer = counting_buffer()
    add_number(buffer, 0)
    stop = threading.Event()

    def write() -> None:
        number = 1
        while not stop.is_set():
            add_number(buffer, number)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()

    def child() -> bool:
        # Not `sample`: NumPy's own lock on its global generator may be held by the thread that the child lacks.
        batch = buffer.transitions(buffer.handles())
        add_number(buffer, 7)
        return is_whole(batch)

    try:
        statuses = [in_child(child) for _ in range(15)]
    finally:
        stop.set()
        thread.join()
    assert statuses == [0] * 15
