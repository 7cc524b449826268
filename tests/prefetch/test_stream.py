"""The background stream: order, depth, what a reset does to it, how errors come out, and how it ends."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive
from relive.annotated import annotated
from relive.errors import EmptyBufferError, ForkedStreamError
from relive.limits import RateLimiter
from relive.prefetch import BatchStream, _tensors

BOX, DISCRETE = spaces.Box(-1e9, 1e9, (2,), np.float32), spaces.Discrete(3)


class Numbers:
    """A buffer whose batches are 0, 1, 2, ..., or what ``draw`` makes of that."""

    def __init__(self, draw: Callable[[int], Any] = lambda number: number) -> None:
        self.draws = 0
        self.draw = draw
        self.threads: set[str] = set()
        self.calls: list[tuple[int, Any]] = []
        self._generation = 0

    def sample(self, batch_size: int, env: Any = None) -> Any:
        self.threads.add(threading.current_thread().name)
        self.calls.append((batch_size, env))
        number = self.draws
        self.draws += 1
        return self.draw(number)


def settled(value: Callable[[], Any], expected: Any) -> bool:
    """Whether a value gets there, and stays a moment."""
    deadline = time.monotonic() + 20
    while value() != expected and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    return bool(value() == expected)


def streams() -> int:
    return sum(thread.name == "relive-stream" for thread in threading.enumerate())


def ring(size: int = 50, seed: int = 0, filled: int = 50) -> relive.ReplayBuffer:
    buffer = relive.ReplayBuffer(size, BOX, DISCRETE, "cpu", seed=seed)
    for number in range(filled):
        add(buffer, number)
    return buffer


def add(buffer: relive.ReplayBuffer, number: float) -> None:
    obs = np.full(2, number, np.float32)
    buffer.add(obs, obs, 0, number, False)


# Order and depth -------------------------------------------------------------------------------------------------


def test_batches_come_in_the_order_of_the_draws() -> None:
    source = Numbers()
    env = object()
    with BatchStream(source, 7, env=env) as stream:
        assert iter(stream) is stream
        assert [next(stream) for _ in range(500)] == list(range(500))
    assert source.threads == {"relive-stream"}
    assert set(source.calls) == {(7, env)}


def test_batches_of_a_private_stream_are_those_of_as_many_samples() -> None:
    buffer, twin = ring(), ring()
    with BatchStream(buffer, 16, depth=3) as stream:
        for _ in range(100):
            drawn, expected = next(stream), twin.sample(16)
            assert type(drawn) is type(expected)
            assert torch.equal(drawn.observations, expected.observations)
            assert torch.equal(drawn.rewards, expected.rewards)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_at_most_depth_batches_are_ready(depth: int) -> None:
    source = Numbers()
    with BatchStream(source, 1, depth) as stream:
        for given in range(1, 6):
            next(stream)
            assert settled(lambda: source.draws, given + depth)


def test_nothing_is_drawn_before_the_first_batch_is_asked_for() -> None:
    source, before = Numbers(), streams()
    with BatchStream(source, 1) as stream:
        time.sleep(0.02)
        assert (source.draws, streams()) == (0, before)
        next(stream)
        assert streams() == before + 1
    assert streams() == before


def test_a_slow_source_is_waited_for_and_a_slow_learner_finds_its_batches_ready() -> None:
    source = Numbers(lambda number: time.sleep(0.02) or number)
    with BatchStream(source, 1, depth=4) as stream:
        assert next(stream) == 0
        assert settled(lambda: source.draws, 5)
        late = threading.Event()
        source.draw = lambda number: late.wait(20)
        assert [next(stream) for _ in range(4)] == [1, 2, 3, 4]
        late.set()


def test_several_threads_share_a_stream_and_each_batch_goes_to_one() -> None:
    source, got = Numbers(), [[] for _ in range(4)]
    with BatchStream(source, 1, depth=3) as stream:

        def take(mine: list[int]) -> None:
            mine.extend(next(stream) for _ in range(200))

        threads = [threading.Thread(target=take, args=(mine,)) for mine in got]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(mine == sorted(mine) for mine in got)
    assert sorted(number for mine in got for number in mine) == list(range(800))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((-1,), ValueError, "batch_size is -1, expected 0 or more"),
        ((2.5,), TypeError, "batch_size is 2.5, expected a whole number"),
        ((1, 0), ValueError, "depth is 0, expected 1 or more"),
        ((1, 1.5), TypeError, "depth is 1.5, expected a whole number"),
    ],
)
def test_wrong_arguments_are_errors_at_once(arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BatchStream(Numbers(), *arguments)


# Adds and resets -------------------------------------------------------------------------------------------------


def test_batches_drawn_before_a_reset_are_never_given_out_after_it() -> None:
    source = Numbers()
    with BatchStream(source, 1, depth=4) as stream:
        for _ in range(50):
            next(stream)
            # As a buffer does: empties itself, then counts up; a draw under way counts as before.
            drawn = source.draws
            source._generation += 1
            assert next(stream) >= drawn


def test_after_a_reset_the_stream_is_empty_and_goes_on_with_what_is_new() -> None:
    buffer = ring()
    buffer._generation = 0
    with BatchStream(buffer, 8, depth=3) as stream:
        for again in range(1, 5):
            assert next(stream).rewards.min() >= 1000 * (again - 1)
            buffer.reset()
            buffer._generation = again
            with pytest.raises(EmptyBufferError, match="empty ReplayBuffer"):
                next(stream)
            add(buffer, 1000 * again)
            assert next(stream).rewards.unique().tolist() == [1000 * again]


def test_an_empty_buffer_is_an_error_only_as_long_as_it_is_empty() -> None:
    buffer = ring(filled=0)
    with BatchStream(buffer, 4) as stream:
        for _ in range(3):
            with pytest.raises(EmptyBufferError, match="add steps first"):
                next(stream)
        for number in range(3):
            add(buffer, number)
        assert len(next(stream).rewards) == 4


def test_an_error_of_the_past_that_has_passed_is_none() -> None:
    # The thread finds the source empty ahead of time; before the batch is asked for, it is filled.
    is_empty = threading.Event()

    def draw(number: int) -> int:
        if is_empty.is_set():
            raise EmptyBufferError("empty")
        return number

    source = Numbers(draw)
    with BatchStream(source, 1, depth=2) as stream:
        for _ in range(30):
            is_empty.set()
            with pytest.raises(EmptyBufferError):
                for _ in stream:
                    pass
            is_empty.clear()
            next(stream)
            next(stream)


def test_a_try_that_began_before_the_batch_was_asked_for_does_not_speak_for_it() -> None:
    entered, leave = threading.Event(), threading.Event()

    def draw(number: int) -> int:
        if number == 1:
            entered.set()
            leave.wait(20)
            raise EmptyBufferError("as it was when this try began")
        return number

    with BatchStream(Numbers(draw), 1) as stream:
        assert next(stream) == 0
        assert entered.wait(20)
        threading.Timer(0.05, leave.set).start()
        assert next(stream) == 2


# Errors ----------------------------------------------------------------------------------------------------------


def fails_at(which: int, error: BaseException) -> Callable[[int], int]:
    def draw_or_fail(number: int) -> int:
        if number == which:
            raise error
        return number

    return draw_or_fail


@pytest.mark.parametrize("error", [KeyError("lost"), MemoryError("full"), SystemExit(3), ValueError("odd")])
def test_an_error_of_the_thread_comes_in_its_turn_with_its_traceback(error: BaseException) -> None:
    source = Numbers(fails_at(2, error))
    with BatchStream(source, 1, depth=5) as stream:
        assert next(stream) == 0
        assert settled(lambda: source.draws, 3), "the thread rests until the error is taken"
        assert next(stream) == 1
        with pytest.raises(type(error)) as caught:
            next(stream)
        assert caught.value is error
        assert "draw_or_fail" in "".join(traceback.format_tb(caught.value.__traceback__))
        assert [next(stream) for _ in range(3)] == [3, 4, 5]


def test_an_error_that_stays_is_raised_each_time() -> None:
    def draw(number: int) -> int:
        raise KeyError(number)

    with BatchStream(Numbers(draw), 1) as stream:
        for number in range(5):
            with pytest.raises(KeyError, match=str(number)):
                next(stream)


def test_a_limiter_s_refusal_ahead_of_time_is_no_error() -> None:
    limiter = RateLimiter(1, 1, error_buffer=(0, 10), on_block="raise")
    held = [0]

    def draw(number: int) -> int:
        with limiter.sampling(2, lambda: held[0]):
            return number

    with BatchStream(Numbers(draw), 1, depth=3) as stream:
        with pytest.raises(RuntimeError, match="sample of 2 rows refused: the buffer holds 0 steps"):
            next(stream)
        for _ in range(10):
            with limiter.inserting(2, lambda: held[0]):
                held[0] += 2
            next(stream)
        with pytest.raises(RuntimeError, match="sample of 2 rows refused: the diff would be -2"):
            next(stream)
    assert limiter.samples == 20


# The end ---------------------------------------------------------------------------------------------------------


def test_close_ends_the_iteration_and_the_thread() -> None:
    source, before = Numbers(), streams()
    stream = BatchStream(source, 1)
    seen = []
    for number in stream:
        seen.append(number)
        if number == 9:
            stream.close()
            stream.close()
    assert seen == list(range(10))
    assert streams() == before
    with pytest.raises(StopIteration):
        next(stream)


def test_a_stream_closed_before_its_first_batch_is_empty() -> None:
    with BatchStream(Numbers(), 1) as stream:
        pass
    assert list(stream) == []


def test_close_ends_the_wait_of_another_thread() -> None:
    entered, leave = threading.Event(), threading.Event()

    def draw(number: int) -> int:
        entered.set()
        leave.wait(20)
        return number

    stream, got = BatchStream(Numbers(draw), 1), []
    learner = threading.Thread(target=lambda: got.extend(stream))
    learner.start()
    assert entered.wait(20)
    closer = threading.Thread(target=stream.close)
    closer.start()
    learner.join(20)
    assert not learner.is_alive() and got == []
    leave.set()
    closer.join(20)
    assert not closer.is_alive()


@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_that_nobody_holds_ends_and_lets_the_buffer_go(fails: bool) -> None:
    before, draws = streams(), 2 if fails else 3
    source = Numbers(fails_at(1, KeyError()) if fails else lambda number: np.zeros(100_000))
    stream, gone = BatchStream(source, 1, depth=2), weakref.ref(source)
    next(stream)
    assert settled(lambda: gone().draws, draws)  # type: ignore[union-attr]
    del stream, source
    gc.collect()
    assert settled(streams, before)
    assert gone() is None


def test_an_abandoned_loop_leaves_no_thread() -> None:
    before = streams()
    for _ in BatchStream(Numbers(), 1):
        break
    gc.collect()
    assert settled(streams, before)


def test_the_stream_keeps_its_buffer_alive_and_the_thread_does_not() -> None:
    stream = BatchStream(ring(), 4)
    gc.collect()
    gone = weakref.ref(stream._buffer)
    assert len(next(stream).rewards) == 4
    shelf = stream._shelf
    del stream
    gc.collect()
    assert gone() is None
    assert shelf.is_closed and not shelf.ready


@pytest.mark.parametrize("how", ["close", "garbage"])
def test_a_thread_that_waits_for_a_limiter_ends_too(how: str) -> None:
    limiter = RateLimiter(1, 10)
    entered = threading.Event()

    def draw(number: int) -> int:
        entered.set()
        with limiter.sampling(1, lambda: 0):
            return number

    before, source = streams(), Numbers(draw)
    stream = BatchStream(source, 1)
    learner = threading.Thread(target=lambda it: list(it), args=(iter(stream),))
    if how == "close":
        learner.start()
        assert entered.wait(20)
        stream.close()
        learner.join(20)
        assert not learner.is_alive()
    else:
        with stream._shelf.changed:  # as `next` does, without its wait
            stream._worker.start()
            stream._shelf.process = os.getpid()
        assert entered.wait(20)
        del learner
    gone = weakref.ref(source)
    del stream, source
    gc.collect()
    assert settled(streams, before)
    assert gone() is None
    assert limiter.samples == 0


def test_the_interpreter_exits_with_a_stream_open() -> None:
    code = """
import threading, numpy as np, time
from relive.prefetch import BatchStream
class Source:
    def sample(self, batch_size, env=None):
        time.sleep(0.001)
        return np.zeros(10)
source = Source()
stream = BatchStream(source, 1)
next(stream)
print("ends")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "ends")
    assert "Fatal" not in done.stderr


forks = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="the system has no safe fork")


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_to_make_a_stream_of_its_own() -> None:
    source = Numbers()
    with BatchStream(source, 1) as stream, BatchStream(source, 1) as fresh:
        next(stream)
        with stream._shelf.changed:  # held while forking, as the thread may
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    try:
                        next(stream)
                    except ForkedStreamError as error:
                        status = 0 if "make a new one in the child" in str(error) else 2
                    stream.close()
                    if not isinstance(next(fresh), int):
                        status = 3
                    fresh.close()
                finally:
                    os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert next(stream) == 1


# CUDA ------------------------------------------------------------------------------------------------------------


def test_every_tensor_of_a_batch_is_found() -> None:
    one, two, three, four, five, six, seven = (torch.full((1,), float(i)) for i in range(7))
    plain = relive.DictReplayBufferSamples({"a": one, "b": (two,)}, three, {"a": four}, five, six)  # type: ignore[arg-type]
    batch = annotated(plain, weights=seven, handles=np.zeros(1), extras={"cost": one, "none": None})
    assert [int(tensor.item()) for tensor in _tensors(batch)] == [0, 1, 2, 3, 4, 5, 6, 0]


@pytest.mark.cuda
def test_batches_on_a_gpu_are_whole_on_the_stream_that_uses_them() -> None:
    buffer = relive.ReplayBuffer(1000, BOX, DISCRETE, "cuda", seed=0)
    for number in range(1000):
        add(buffer, number)
    with BatchStream(buffer, 4096, depth=3) as stream, torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(200):
            batch = next(stream)
            assert bool((batch.observations == batch.rewards).all())
