"""How fast a buffer is drawn from, against how fast it is filled: a limiter with Reverb's semantics.

``diff`` is the account of both sides: every step inserted adds ``samples_per_insert`` to it, every row drawn takes 1
from it. Inserts may lift it up to ``high``, samples may lower it down to ``low``.
"""

from __future__ import annotations

import math
import operator
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypeAlias

from relive.errors import LimiterClosedError, RateLimitError, RateLimitTimeoutError

#: Tells how many steps the buffer holds now; asked anew whenever something may have changed.
Size: TypeAlias = Callable[[], int]
_Kind: TypeAlias = Literal["insert", "sample"]

# A waiter looks again after so many seconds even if nobody wakes it: the size of a buffer can change behind the
# limiter's back, and on Windows a wait without end cannot be interrupted from the keyboard.
_LOOK_AGAIN = 0.5


class _ThisThread(threading.local):
    """What a thread says about its own waits.

    Attributes:
        gives_up: asked while it waits for any limiter; True ends the wait with a `LimiterClosedError`.
    """

    gives_up: Callable[[], bool] = staticmethod(lambda: False)


this_thread = _ThisThread()


class _Call:
    """An insert or a sample of ``n``, which is the body of a ``with``."""

    def __init__(self, limiter: RateLimiter, kind: _Kind, n: int, size: Size) -> None:
        self.limiter = limiter
        self.kind: _Kind = kind
        self.n = operator.index(n)
        self.size = size
        self.stuck: str | None = None
        if self.n < 0:
            raise ValueError(f"n is {n}, expected 0 or more")

    def __enter__(self) -> None:
        self.limiter._begin(self)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.limiter._end(self, succeeded=kind is None)

    def __str__(self) -> str:
        unit = "step" if self.kind == "insert" else "row"
        return f"{self.kind} of {self.n} {unit}{'' if self.n == 1 else 's'}"


class RateLimiter:
    """Holds the ratio of rows drawn to steps added near ``samples_per_insert``.

    An insert counts the steps of all environments, so an ``add`` counts ``n_envs`` (less what its mask leaves out) and
    an ``extend`` counts all its steps. A sample counts the rows of its batch. A call goes through as a whole or not at
    all, and counts once it has succeeded; a call that fails counts nothing.

    - A sample goes through where the buffer holds ``min_size`` steps and the diff after it is at least ``low``.
    - An insert goes through where the diff after it is at most ``high``. Below ``min_size`` steps inserts are free:
      there no sample could ever make room for them.

    A limiter belongs to one buffer, and may be called from any thread of it. Copies and pickles carry the counters,
    but neither those who wait nor that it was closed.

    Args:
        samples_per_insert: how often each step is drawn, on average.
        min_size: steps that the buffer must hold before anything is drawn, at least 1.
        error_buffer: how far the diff may go: a pair (low, high), each of which may be infinite; or a number e for
            ``samples_per_insert * min_size`` ± e, so that the account starts in the middle when ``min_size`` is
            reached; None for e = ``samples_per_insert * min_size``, which is a pair (0, twice that).
        timeout: seconds after which a call that waits gives up; None waits on.
        on_block: "wait" makes a call that may not pass wait, "raise" makes it an error. A program of one thread
            wants "raise", or asks `can_sample` first: nobody else could end its wait.

    Raises:
        ValueError: an argument out of its range, or a band too narrow for even one step or one row.

    Example:
        >>> limiter = RateLimiter(1.5, 2, error_buffer=(-1, 3), on_block="raise")
        >>> held = []
        >>> for step in "ab":
        ...     with limiter.inserting(1, held.__len__):
        ...         held.append(step)
        >>> with limiter.sampling(1, held.__len__):
        ...     drawn = held[0]
        >>> limiter.inserts, limiter.samples, limiter.diff
        (2, 1, 2.0)
        >>> limiter.can_insert(1, held.__len__)
        False
    """

    def __init__(
        self,
        samples_per_insert: float,
        min_size: int,
        *,
        error_buffer: Sequence[float] | float | None = None,
        timeout: float | None = None,
        on_block: Literal["wait", "raise"] = "wait",
    ) -> None:
        ratio = float(samples_per_insert)
        if not 0 < ratio < math.inf:
            raise ValueError(f"samples_per_insert is {samples_per_insert}, expected a finite number above 0")
        if operator.index(min_size) < 1:
            raise ValueError(f"min_size is {min_size}, expected at least 1")
        if on_block not in ("wait", "raise"):
            raise ValueError(f"on_block is {on_block!r}, expected 'wait' or 'raise'")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout is {timeout}, expected None or 0 or more seconds")
        if timeout is not None and on_block == "raise":
            raise ValueError(f"timeout is {timeout}, expected None: on_block='raise' never waits")
        self.samples_per_insert = ratio
        self.min_size = operator.index(min_size)
        self.low, self.high = _band(error_buffer, ratio, self.min_size)
        self.timeout = timeout
        self.on_block = on_block
        self._is_attached = False
        self._is_closed = False
        self._inserts = 0
        self._samples = 0
        self._start()

    # Asking --------------------------------------------------------------------------------------------------------

    @property
    def inserts(self) -> int:
        """Steps inserted since the start or the last `reset`."""
        return self._inserts

    @property
    def samples(self) -> int:
        """Rows drawn since the start or the last `reset`."""
        return self._samples

    @property
    def diff(self) -> float:
        """``inserts * samples_per_insert - samples``."""
        with self._lock():
            return self._inserts * self.samples_per_insert - self._samples

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def can_insert(self, n: int, size: Size) -> bool:
        """Whether an insert of ``n`` steps would go through now."""
        with self._lock():
            return not self._is_closed and self._obstacle(_Call(self, "insert", n, size)) is None

    def can_sample(self, n: int, size: Size) -> bool:
        """Whether a sample of ``n`` rows would go through now."""
        with self._lock():
            return not self._is_closed and self._obstacle(_Call(self, "sample", n, size)) is None

    def __repr__(self) -> str:
        return (
            f"RateLimiter(samples_per_insert={self.samples_per_insert:g}, min_size={self.min_size}, "
            f"error_buffer=({self.low:g}, {self.high:g}), inserts={self.inserts}, samples={self.samples}, "
            f"diff={self.diff:g})"
        )

    # Passing -------------------------------------------------------------------------------------------------------

    def inserting(self, n: int, size: Size) -> AbstractContextManager[None]:
        """Lets an insert of ``n`` steps through, which is the body of the ``with``; where that fails, nothing counts.

        Args:
            n: how many steps; 0 always goes through.
            size: tells how many steps the buffer holds.

        Raises:
            RateLimitError: it may not pass now and ``on_block`` is "raise"; or nobody could end its wait.
            RateLimitTimeoutError: it waited for ``timeout`` seconds.
            LimiterClosedError: the limiter is closed, or was while it waited.
            ValueError: no number of samples could ever make room for ``n`` steps at once.
        """
        return _Call(self, "insert", n, size)

    def sampling(self, n: int, size: Size) -> AbstractContextManager[None]:
        """Lets a sample of ``n`` rows through, which is the body of the ``with``; where that fails, nothing counts.

        Args:
            n: how many rows; 0 always goes through.
            size: tells how many steps the buffer holds.

        Raises:
            RateLimitError, RateLimitTimeoutError, LimiterClosedError, ValueError: as `inserting`.
        """
        return _Call(self, "sample", n, size)

    # Around it -----------------------------------------------------------------------------------------------------

    def attach(self, capacity: int) -> None:
        """Makes this the limiter of a buffer that can hold ``capacity`` steps; a buffer does so when it is made.

        Raises:
            ValueError: it belongs to another buffer, or ``min_size`` is more than the buffer can hold.
        """
        if self._is_attached:
            raise ValueError("limiter belongs to another buffer, whose steps it counts; make one for each buffer")
        if self.min_size > capacity:
            raise ValueError(
                f"min_size of the limiter is {self.min_size}, expected at most {capacity}, the steps that the buffer "
                "can hold: nothing could ever be drawn"
            )
        self._is_attached = True

    def reset(self) -> None:
        """Sets the counters to zero, as when the buffer is emptied; calls that run meanwhile do not count."""
        with self._lock():
            self._running.clear()
            self._inserts = self._samples = 0
            self._changed.notify_all()

    def close(self) -> None:
        """Ends every wait with a `LimiterClosedError`, and lets nothing through from now on."""
        with self._lock():
            self._is_closed = True
            self._changed.notify_all()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock():
            state = {name: value for name, value in self.__dict__.items() if name not in _OF_THIS_PROCESS}
        return state | {"_is_closed": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    # Inside --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._waiting: list[_Call] = []
        self._running: list[_Call] = []

    def _lock(self) -> threading.Condition:
        if self._process != os.getpid():
            self._start()  # a forked child: the lock may be held, and calls running, in threads that it lacks
        return self._changed

    def _begin(self, call: _Call) -> None:
        """Returns once the call may pass, and notes that it is running."""
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        with self._lock():
            while True:
                if self._is_closed:
                    raise LimiterClosedError(f"{call} cancelled: the limiter is closed")
                if this_thread.gives_up():
                    raise LimiterClosedError(f"{call} cancelled: its thread gives up")
                obstacle = self._obstacle(call)
                if obstacle is None:
                    self._running.append(call)
                    return
                if self._excess(call) > 0:
                    raise ValueError(f"{call} can never pass: {self._why_never(call)}")
                if self.on_block == "raise":
                    raise RateLimitError(f"{call} refused: {obstacle}")
                left = _LOOK_AGAIN if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise RateLimitTimeoutError(f"{call} gave up after {self.timeout:g} s: {obstacle}")
                self._waiting.append(call)
                try:
                    stuck = call.stuck or self._find_stuck()
                    if stuck is not None:
                        raise RateLimitError(f"{call} is stuck: {obstacle}; {stuck}")
                    self._changed.wait(min(left, _LOOK_AGAIN))
                finally:
                    self._waiting.remove(call)

    def _end(self, call: _Call, *, succeeded: bool) -> None:
        with self._lock():
            # Not there: begun before a reset, or by the parent of a forked child. It then counts no more.
            if call in self._running:
                self._running.remove(call)
                if succeeded and call.kind == "insert":
                    self._inserts += call.n
                elif succeeded:
                    self._samples += call.n
            self._changed.notify_all()

    def _obstacle(self, call: _Call) -> str | None:
        """Why the call may not pass now, or None.

        Running calls of its own kind are taken to succeed, those of the other to fail: however they end, the diff stays
        in its band.
        """
        if call.n == 0:
            return None
        running = sum(other.n for other in self._running if other.kind == call.kind)
        size = call.size()
        if call.kind == "insert":
            after = (self._inserts + running + call.n) * self.samples_per_insert - self._samples
            if after <= self.high or size + running + call.n <= self.min_size:
                return None
            # The insert that passes min_size may do so by less than its own length: no sample can make room before.
            if size + running < self.min_size and self._excess(call) <= 0:
                return None
            return (
                f"the diff would be {after:g}, at most {self.high:g} is allowed (error_buffer); "
                f"to draw {math.ceil(after - self.high)} more would make room"
            )
        if size < self.min_size:
            return f"the buffer holds {size} steps, min_size is {self.min_size}"
        after = self.diff - running - call.n
        if after >= self.low:
            return None
        missing = math.ceil((self.low - after) / self.samples_per_insert)
        return (
            f"the diff would be {after:g}, at least {self.low:g} is allowed (error_buffer); "
            f"to insert {missing} more would make room"
        )

    def _excess(self, call: _Call) -> float:
        """By how much the call would leave the band after all that the other side could do; above 0 is never."""
        if call.kind == "insert":
            return min(self.diff, self.low) + call.n * self.samples_per_insert - self.high
        free = max(self.min_size - call.size(), 0) * self.samples_per_insert
        return self.low - (max(self.diff + free, self.high) - call.n)

    def _why_never(self, call: _Call) -> str:
        lifts = f"a step lifts the diff by {self.samples_per_insert:g}, a row lowers it by 1"
        band = f"error_buffer allows a diff from {self.low:g} to {self.high:g}"
        return f"{lifts}, and {band}; expected one wider by {self._excess(call):g} or more, or a smaller {call.kind}"

    def _find_stuck(self) -> str | None:
        """Why nobody is left who could end any wait, or None; those who wait are told.

        Inserts and samples wait for each other where the band is wide enough for either, but not for both.
        """
        if self._running or any(self._obstacle(call) is None for call in self._waiting):
            return None
        steps = max((call.n for call in self._waiting if call.kind == "insert"), default=0)
        rows = max((call.n for call in self._waiting if call.kind == "sample"), default=0)
        if steps and rows:
            needed = steps * self.samples_per_insert + rows
            stuck = (
                f"inserts of {steps} and samples of {rows} wait for each other; expected an error_buffer at least "
                f"{needed:g} wide, got {self.high - self.low:g}"
            )
            for call in self._waiting:
                call.stuck = stuck
            self._changed.notify_all()
            return stuck
        if self.timeout is None and threading.active_count() == 1:
            return "this is the only thread, so nobody could end the wait; use on_block='raise' or a timeout"
        return None


_OF_THIS_PROCESS = ("_process", "_changed", "_waiting", "_running")


def _band(given: Sequence[float] | float | None, ratio: float, min_size: int) -> tuple[float, float]:
    """(low, high) as the argument ``error_buffer`` means it."""
    middle = ratio * min_size
    if isinstance(given, Sequence):
        if len(given) != 2:
            raise ValueError(f"error_buffer has {len(given)} values, expected (low, high) or one number")
        low, high = float(given[0]), float(given[1])
    else:
        half = max(middle, 1.0) if given is None else float(given)
        low, high = middle - half, middle + half
    if not high - low >= max(1.0, ratio):  # false for NaN too
        raise ValueError(
            f"error_buffer is {given}, which allows a diff from {low:g} to {high:g}; expected a band at least "
            f"{max(1.0, ratio):g} wide: a step lifts the diff by samples_per_insert={ratio:g}, a row lowers it by 1"
        )
    return low, high
