"""Batches drawn on a background thread: the same ones, and none from before a reset."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import relive
from tests.cases.chains import replay, step


def filled(steps: int = 8, **options: Any) -> relive.ReplayBuffer:
    buffer = replay(8, seed=0, **options)
    for t in range(steps):
        step(buffer, t, t + 1)
    return buffer


def numbers(batch: Any) -> list[int]:
    return batch.observations.flatten().int().tolist()


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("sampler", [relive.Uniform, relive.Prioritized])
def test_a_stream_gives_what_sample_would(depth: int, sampler: Any) -> None:
    buffer, other = filled(sampler=sampler()), filled(sampler=sampler())
    with buffer.stream(5, depth=depth) as batches:
        streamed = [numbers(batch) for batch in islice(batches, 20)]
    assert streamed == [numbers(other.sample(5)) for _ in range(20)]


def test_nothing_from_before_a_reset_is_given_out() -> None:
    """TorchRL's prefetch returns the old data after `empty`."""
    buffer = filled()
    with buffer.stream(5, depth=3) as batches:
        next(batches)
        buffer.reset()
        for t in range(100, 104):
            step(buffer, t, t + 1)
        for _ in range(6):
            assert min(numbers(next(batches))) >= 100


def test_an_empty_buffer_is_an_error_not_a_hang() -> None:
    buffer = filled()
    with buffer.stream(5) as batches:
        next(batches)
        buffer.reset()
        with pytest.raises(relive.errors.EmptyBufferError):
            list(batches)


def test_priorities_come_back_by_handle() -> None:
    buffer = filled(sampler=relive.Prioritized(alpha=1.0, eps=0.0))
    with buffer.stream(4) as batches:
        batch = next(batches)
        for t in range(8, 16):
            step(buffer, t, t + 1)
        assert buffer.update_priorities(batch.handles, np.full(4, 9.0)) == 4
    assert set(buffer.priorities(buffer.handles()).tolist()) == {1.0}


def test_closing_twice_is_harmless_and_ends_the_iteration() -> None:
    batches = filled().stream(3)
    next(batches)
    batches.close()
    batches.close()
    assert list(batches) == []
