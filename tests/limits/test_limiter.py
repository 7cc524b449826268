"""The rate limiter: what goes through, who waits for whom, and every way in which a wait ends."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relive.errors import LimiterClosedError, RateLimitError, RateLimitTimeoutError, ReliveError
from relive.limits import RateLimiter

INF = float("inf")


class Store:
    """Stands for a buffer of some capacity."""

    def __init__(self, limiter: RateLimiter, held: int = 0, capacity: int = 10**9) -> None:
        self.limiter = limiter
        self.held = held
        self.capacity = capacity

    def size(self) -> int:
        return self.held

    def insert(self, n: int = 1) -> None:
        with self.limiter.inserting(n, self.size):
            self.held = min(self.held + n, self.capacity)

    def sample(self, n: int = 1) -> None:
        with self.limiter.sampling(n, self.size):
            pass

    def counters(self) -> tuple[int, int]:
        return self.limiter.inserts, self.limiter.samples


def store(spi: float = 1, min_size: int = 1, held: int = 0, capacity: int = 10**9, **options: Any) -> Store:
    return Store(RateLimiter(spi, min_size, **options), held, capacity)


def refusing(spi: float, min_size: int, band: Any = None, **options: Any) -> Store:
    return store(spi, min_size, error_buffer=band, on_block="raise", **options)


class Background:
    """Runs a call on a thread and keeps how it ended."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.call = call
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.call()
        except BaseException as error:
            self.error = error

    def is_waiting(self) -> bool:
        self.thread.join(0.02)
        return self.thread.is_alive()

    def end(self) -> BaseException | None:
        self.thread.join(20)
        assert not self.thread.is_alive(), "it hangs"
        return self.error


@pytest.fixture(autouse=True)
def _somebody_else_is_there() -> Iterator[None]:
    """A second thread: a lone one is told that nobody could end its wait."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    yield
    stop.set()
    thread.join()


# Building -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples_per_insert": 0}, "samples_per_insert is 0, expected a finite number above 0"),
        ({"samples_per_insert": float("nan")}, "samples_per_insert is nan"),
        ({"samples_per_insert": INF}, "samples_per_insert is inf"),
        ({"min_size": 0}, "min_size is 0, expected at least 1"),
        ({"on_block": "skip"}, "on_block is 'skip', expected 'wait' or 'raise'"),
        ({"timeout": -1}, "timeout is -1, expected None or 0 or more seconds"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": 1, "on_block": "raise"}, "timeout is 1, expected None: on_block='raise' never waits"),
        ({"error_buffer": (0, 1)}, r"error_buffer is \(0, 1\).*from 0 to 1; expected a band at least 2 wide"),
        ({"error_buffer": (3, 0)}, "error_buffer is"),
        ({"error_buffer": (0, float("nan"))}, "error_buffer is"),
        ({"error_buffer": (INF, INF)}, "error_buffer is"),
        ({"error_buffer": 0.5}, "error_buffer is 0.5, which allows a diff from 7.5 to 8.5"),
        ({"error_buffer": (1, 2, 3)}, r"error_buffer has 3 values, expected \(low, high\) or one number"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RateLimiter(**({"samples_per_insert": 2, "min_size": 4} | arguments))


@pytest.mark.parametrize(
    ("spi", "min_size", "given", "band"),
    [
        (2, 10, None, (0, 40)),
        (0.01, 10, None, (-0.9, 1.1)),
        (2, 10, 5, (15, 25)),
        (2, 10, (-1, 30), (-1, 30)),
        (2, 10, [0, INF], (0, INF)),
        (2, 10, INF, (-INF, INF)),
    ],
)
def test_the_band_is_a_pair_or_lies_around_the_start(spi: float, min_size: int, given: Any, band: Any) -> None:
    limiter = RateLimiter(spi, min_size, error_buffer=given)
    assert (limiter.low, limiter.high) == pytest.approx(band)


def test_it_prints_its_account() -> None:
    limited = refusing(1.5, 2, (-1, 5))
    limited.insert(2)
    limited.sample()
    assert repr(limited.limiter) == (
        "RateLimiter(samples_per_insert=1.5, min_size=2, error_buffer=(-1, 5), inserts=2, samples=1, diff=2)"
    )


def test_a_limiter_belongs_to_one_buffer_that_can_hold_min_size() -> None:
    limiter = RateLimiter(1, 10)
    with pytest.raises(ValueError, match="min_size of the limiter is 10, expected at most 9, the steps"):
        limiter.attach(9)
    limiter.attach(10)
    with pytest.raises(ValueError, match="belongs to another buffer"):
        limiter.attach(10)
    RateLimiter(1, 10).attach(20)


# Counting -------------------------------------------------------------------------------------------------------------


def test_a_call_counts_all_its_steps_or_rows() -> None:
    limited = refusing(4, 8, (0, 64))
    limited.insert(8)
    limited.sample(20)
    assert limited.counters() == (8, 20)
    assert limited.limiter.diff == 12
    limited.sample(12)
    with pytest.raises(RateLimitError, match="sample of 1 row refused: the diff would be -1, at least 0 is allowed"):
        limited.sample()
    limited.insert(16)
    with pytest.raises(RateLimitError, match="insert of 8 steps refused: the diff would be 96, at most 64 is allowed"):
        limited.insert(8)
    assert limited.counters() == (24, 32)


def test_a_call_goes_through_as_a_whole_or_not_at_all() -> None:
    limited = refusing(1, 1, (0, 10))
    limited.insert(8)
    with pytest.raises(RateLimitError, match="to draw 1 more would make room"):
        limited.insert(3)
    limited.insert(2)
    with pytest.raises(ValueError, match="can never pass"):
        limited.sample(11)
    limited.sample(10)


def test_an_empty_call_always_goes_through() -> None:
    limited = refusing(1, 5, (0, 10))
    limited.sample(0)
    limited.insert(5)
    limited.insert(5)
    limited.insert(0)
    assert limited.counters() == (10, 0)


@pytest.mark.parametrize("what", ["inserting", "sampling", "can_insert", "can_sample"])
def test_a_negative_count_is_an_error(what: str) -> None:
    limiter = RateLimiter(1, 1)
    with pytest.raises(ValueError, match="n is -1, expected 0 or more"):
        getattr(limiter, what)(-1, lambda: 0)


@pytest.mark.parametrize("what", ["inserting", "sampling"])
def test_a_call_that_fails_counts_nothing(what: str) -> None:
    limited = refusing(1, 1, (-1, 1))
    limited.insert()
    if what == "inserting":
        limited.sample()
    before = limited.counters()
    for _ in range(5):
        with pytest.raises(KeyError), getattr(limited.limiter, what)(1, limited.size):
            raise KeyError
    assert limited.counters() == before
    limited.insert() if what == "inserting" else limited.sample()


def test_the_last_insert_below_min_size_may_pass_it() -> None:
    # With 4 environments and min_size 10, sizes are 4, 8, 12: the third must pass whatever the diff, as at 8 nothing
    # may be drawn yet.
    limited = refusing(1, 10, 4)
    assert limited.limiter.high == 14
    for _ in range(3):
        limited.insert(4)
    narrow = refusing(1, 10, (2, 10))
    for _ in range(3):
        narrow.insert(4)
    assert narrow.limiter.diff == 12
    with pytest.raises(RateLimitError, match="insert of 4"):
        narrow.insert(4)
    narrow.sample(8)


def test_filling_up_to_min_size_in_one_call_is_free() -> None:
    limited = refusing(8, 1000, 64)
    limited.insert(1000)
    assert limited.limiter.diff == 8000


# Never ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"on_block": "raise"}, {"on_block": "wait"}, {"timeout": 100}])
@pytest.mark.parametrize("held", [0, 4])
def test_an_insert_that_can_never_fit_is_an_error_at_once(options: dict[str, Any], held: int) -> None:
    limited = store(2, 4, held=held, error_buffer=(0, 8), **options)
    with pytest.raises(
        ValueError, match=r"insert of 5 steps can never pass: .*expected one wider by 2 or more"
    ) as info:
        limited.insert(5)
    assert not isinstance(info.value, RateLimitError)
    limited.insert(4)


@pytest.mark.parametrize("options", [{"on_block": "raise"}, {"on_block": "wait"}, {"timeout": 100}])
def test_a_sample_that_can_never_fit_is_an_error_at_once(options: dict[str, Any]) -> None:
    limited = store(2, 4, error_buffer=(0, 8), **options)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"sample of 9 rows can never pass: .*expected one wider by 1 or more"):
            limited.sample(9)
        if limited.held == 0:
            limited.insert(4)
    limited.sample(8)


def test_what_fits_only_after_the_free_inserts_is_not_called_impossible() -> None:
    limited = refusing(1, 100, (0, 10))
    with pytest.raises(RateLimitError, match="holds 0 steps, min_size is 100"):
        limited.sample(50)
    limited.insert(100)
    limited.sample(50)


# Size -----------------------------------------------------------------------------------------------------------------


def test_a_size_that_falls_blocks_samples_and_frees_inserts() -> None:
    limited = refusing(1, 4, (0, 5))
    limited.insert(4)
    limited.insert(1)
    with pytest.raises(RateLimitError, match="insert of 1"):
        limited.insert()
    limited.held = 2
    with pytest.raises(RateLimitError, match="sample of 1 row refused: the buffer holds 2 steps, min_size is 4"):
        limited.sample()
    limited.insert(2)
    limited.sample()


def test_a_full_ring_goes_on_by_the_diff() -> None:
    limited = refusing(1, 4, (0, 8), capacity=4)
    limited.insert(4)
    for _ in range(50):
        limited.sample(2)
        limited.insert(2)
    assert limited.held == 4
    assert limited.counters() == (104, 100)


def test_a_waiting_sample_sees_a_size_that_changed_behind_the_limiter() -> None:
    limited = store(1, 4, error_buffer=(-INF, INF))
    sample = Background(limited.sample)
    assert sample.is_waiting()
    limited.held = 4
    assert sample.end() is None


# Waiting --------------------------------------------------------------------------------------------------------------


def test_a_sample_waits_for_min_size_and_an_insert_for_the_band() -> None:
    limited = store(1, 2, error_buffer=(0, 3))
    sample = Background(limited.sample)
    assert sample.is_waiting()
    limited.insert()
    assert sample.is_waiting()
    limited.insert()
    assert sample.end() is None
    limited.insert(2)
    insert = Background(limited.insert)
    assert insert.is_waiting()
    assert limited.counters() == (4, 1)
    limited.sample()
    assert insert.end() is None
    assert limited.counters() == (5, 2)


def test_a_running_insert_does_not_yet_let_samples_through_but_holds_its_place() -> None:
    limited = store(1, 1, error_buffer=(0, 4))
    limited.insert(2)
    with limited.limiter.inserting(2, limited.size):
        assert not limited.limiter.can_insert(1, limited.size)
        assert limited.limiter.can_sample(2, limited.size)
        assert not limited.limiter.can_sample(3, limited.size)
        insert = Background(limited.insert)
        assert insert.is_waiting()
    assert insert.is_waiting()
    limited.sample()
    assert insert.end() is None


def test_the_place_of_an_insert_that_fails_goes_to_the_next() -> None:
    limited = store(1, 1, error_buffer=(0, 4))
    limited.insert(2)

    def fail() -> None:
        with limited.limiter.inserting(2, limited.size):
            insert.append(Background(limited.insert))
            assert insert[0].is_waiting()
            raise KeyError

    insert: list[Background] = []
    with pytest.raises(KeyError):
        fail()
    assert insert[0].end() is None
    assert limited.counters() == (3, 0)


def test_one_insert_wakes_every_sample_that_it_makes_room_for() -> None:
    limited = store(8, 1, error_buffer=(0, 16))
    samples = [Background(limited.sample) for _ in range(8)]
    assert all(sample.is_waiting() for sample in samples)
    limited.insert()
    assert [sample.end() for sample in samples] == [None] * 8
    assert limited.limiter.diff == 0


def test_a_large_sample_waits_while_small_ones_pass() -> None:
    limited = store(1, 1, error_buffer=(0, 100))
    limited.insert(5)
    large = Background(lambda: limited.sample(10))
    assert large.is_waiting()
    limited.sample(2)
    limited.insert(7)
    assert large.end() is None
    assert limited.counters() == (12, 12)


@pytest.mark.parametrize("kind", ["insert", "sample"])
def test_a_wait_times_out_and_says_why(kind: str) -> None:
    limited = store(1, 1, error_buffer=(0, 2), timeout=0.05)
    limited.insert(2)
    if kind == "sample":
        limited.sample(2)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=f"{kind} of 1 .* gave up after 0.05 s: the diff would be") as info:
        getattr(limited, kind)()
    assert time.monotonic() - start >= 0.05
    assert isinstance(info.value, RateLimitTimeoutError) and isinstance(info.value, ReliveError)
    assert limited.counters() == ((2, 0) if kind == "insert" else (2, 2))


def test_a_timeout_of_zero_never_waits() -> None:
    limited = store(1, 2, timeout=0)
    with pytest.raises(TimeoutError, match="holds 0 steps, min_size is 2"):
        limited.sample()
    limited.insert(2)
    limited.sample()


def test_calls_that_time_out_one_after_another_leave_no_trace() -> None:
    limited = store(1, 1, error_buffer=(0, 2), timeout=0.01)
    limited.insert(2)
    waiting = [Background(limited.insert) for _ in range(6)]
    assert all(isinstance(insert.end(), TimeoutError) for insert in waiting)
    limited.sample(2)
    limited.insert(2)
    assert limited.counters() == (4, 2)


def test_inserts_and_samples_that_wait_for_each_other_are_told() -> None:
    limited = store(1, 1, error_buffer=(0, 10))
    limited.insert(6)
    insert = Background(lambda: limited.insert(8))
    assert insert.is_waiting()
    sample = Background(lambda: limited.sample(8))
    for call, name in ((insert, "insert of 8 steps"), (sample, "sample of 8 rows")):
        error = call.end()
        assert isinstance(error, RateLimitError) and not isinstance(error, TimeoutError)
        assert str(error).startswith(f"{name} is stuck")
        assert "inserts of 8 and samples of 8 wait for each other" in str(error)
        assert "expected an error_buffer at least 16 wide, got 10" in str(error)
    limited.sample(6)
    limited.insert(10)


def test_a_lone_thread_is_told_that_nobody_could_end_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    with pytest.raises(RateLimitError, match="only thread, so nobody could end the wait; use on_block='raise' or a"):
        store(1, 2).sample()
    with pytest.raises(TimeoutError, match="holds 0 steps"):
        store(1, 2, timeout=0.01).sample()


# Closing, resetting, copying ------------------------------------------------------------------------------------------


def test_close_ends_every_wait_and_lets_nothing_through() -> None:
    limited = store(1, 4, error_buffer=(0, 8))
    waiting = [Background(limited.sample) for _ in range(4)]
    assert all(sample.is_waiting() for sample in waiting)
    assert not limited.limiter.is_closed
    limited.limiter.close()
    limited.limiter.close()
    for sample in waiting:
        error = sample.end()
        assert isinstance(error, LimiterClosedError)
        assert str(error) == "sample of 1 row cancelled: the limiter is closed"
    with pytest.raises(LimiterClosedError, match="insert of 1 step cancelled"):
        limited.insert()
    assert limited.limiter.is_closed
    assert not limited.limiter.can_insert(1, limited.size)
    assert not limited.limiter.can_sample(0, limited.size)


def test_a_call_that_runs_when_the_limiter_closes_still_counts() -> None:
    limited = store(1, 1)
    with limited.limiter.inserting(1, limited.size):
        limited.limiter.close()
    assert limited.counters() == (1, 0)


def test_reset_starts_the_account_anew() -> None:
    limited = store(1, 2, error_buffer=(0, 2))
    limited.insert(2)
    insert = Background(limited.insert)
    assert insert.is_waiting()
    limited.held = 0
    limited.limiter.reset()
    assert insert.end() is None
    assert limited.counters() == (1, 0)
    sample = Background(limited.sample)
    assert sample.is_waiting()
    limited.insert()
    assert sample.end() is None


def test_a_call_that_runs_across_a_reset_does_not_count() -> None:
    limited = refusing(1, 1, (0, 4))
    limited.insert(2)
    with limited.limiter.sampling(2, limited.size), limited.limiter.inserting(1, limited.size):
        limited.limiter.reset()
    assert limited.counters() == (0, 0)
    assert limited.limiter.can_insert(4, limited.size), "and holds no place"


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_carry_the_account_and_nothing_of_who_waits(copied: Callable[[RateLimiter], RateLimiter]) -> None:
    limited = store(1, 1, error_buffer=(0, 4))
    limited.insert(4)
    limited.sample(1)
    insert = Background(lambda: limited.insert(2))
    assert insert.is_waiting()
    with limited.limiter.sampling(1, limited.size):
        other = Store(copied(limited.limiter), limited.held)
    assert insert.end() is None
    assert (other.counters(), other.limiter.diff) == ((4, 1), 3)
    assert (other.limiter.low, other.limiter.high, other.limiter.min_size) == (0, 4, 1)
    limited.limiter.close()
    other.insert(1)
    other.sample(4)
    assert other.counters() == (5, 5)
    assert limited.counters() == (6, 2)
    reopened = copied(limited.limiter)
    assert not reopened.is_closed


forks = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="the system has no safe fork")


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_inherits_the_account_but_no_lock_and_no_running_call() -> None:
    limited = store(1, 1, error_buffer=(0, 4), timeout=5)
    limited.insert(2)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with limited.limiter.inserting(2, limited.size), limited.limiter._changed:
            inside.set()
            leave.wait(20)

    holder = Background(hold)
    assert inside.wait(20)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            limited.insert(2)
            limited.sample(4)
            status = 0 if limited.counters() == (4, 4) else 1
        finally:
            os._exit(status)
    leave.set()
    assert holder.end() is None
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert limited.counters() == (4, 0)


# Many threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (4, 1), (1, 4), (3, 3)])
def test_threads_end_with_their_work_done_and_the_band_never_left(writers: int, readers: int) -> None:
    spi, n, k, rounds = 4, 2, 5, 120
    limiter = RateLimiter(spi, 10, error_buffer=(35 - 20, 45 + 20))
    lock, held, seen = threading.Lock(), [0], []

    def size() -> int:
        return held[0]

    def note() -> None:
        seen.append((held[0], limiter.diff))

    def write(times: int) -> None:
        for _ in range(times):
            with limiter.inserting(n, size), lock:
                held[0] += n
            note()

    def read(times: int) -> None:
        for _ in range(times):
            with limiter.sampling(k, size):
                note()
            note()

    # As many rows in all as the inserts pay for, so that both sides can end: the start's share stays in the account.
    inserts = writers * rounds * n
    draws = (inserts * spi - 40) // k // readers
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        calls = [Background(lambda: write(rounds)) for _ in range(writers)]
        calls += [Background(lambda: read(draws)) for _ in range(readers)]
        assert [call.end() for call in calls] == [None] * len(calls)
    finally:
        sys.setswitchinterval(switch)
    assert (limiter.inserts, limiter.samples) == (inserts, draws * k * readers)
    assert max(diff for _, diff in seen) <= limiter.high
    assert min(diff for count, diff in seen if count >= 10) >= limiter.low
