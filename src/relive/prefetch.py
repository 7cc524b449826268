"""Batches drawn ahead, on a thread of their own, while the learner works on the one before."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch

from relive import limits
from relive.errors import EmptyBufferError, ForkedStreamError, RateLimitError
from relive.inputs import whole_number

# What another try may mend by itself, so it is an error only if it happens while somebody waits for the batch.
_NOT_NOW = (EmptyBufferError, RateLimitError)
# Without end, a wait cannot be interrupted from the keyboard on Windows.
_LOOK_AGAIN = 0.5
# For how long close waits for a draw under way; then the thread ends by itself, after it.
_PATIENCE = 1.0


class Source(Protocol):
    """What batches can be drawn from."""

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """A batch."""


class BatchStream:
    """Iterates without end over batches of ``buffer.sample(batch_size, env=env)``, drawn on a background thread.

    The thread starts with the first batch asked for. Batches come in the order in which they are drawn, so with a
    private stream of a buffer that stays as it is they are those of as many calls of ``sample``. A batch is drawn up to
    ``depth`` batches before it is given out, so it may miss the newest steps; batches drawn before a ``reset`` of the
    buffer are thrown away, never given out after it.

    Several threads may iterate over one stream; each batch goes to one of them. It ends by `close`, by leaving its
    ``with``, or when nobody holds it any more.

    Args:
        buffer: any buffer or mixture; the thread itself does not keep it alive.
        batch_size: rows of each batch.
        depth: how many batches at most are ready, at least 1.
        env: normalises the batches, as in ``sample``; it is then called on the thread.

    Raises:
        EmptyBufferError: by ``next``, as long as there is nothing to draw; asking again later goes on. The same holds
            for every error of ``sample``: the ``next`` whose turn it is raises it, with its traceback.
        ForkedStreamError: by ``next``, in a forked child; make a new stream there.
    """

    def __init__(self, buffer: Source, batch_size: int, depth: int = 2, env: Any = None) -> None:
        size, depth = whole_number(batch_size, "batch_size"), whole_number(depth, "depth", 1)
        self._buffer = buffer
        self._shelf = _Shelf(depth)
        self._worker = threading.Thread(
            target=_work, args=(self._shelf, weakref.ref(buffer), size, env), name="relive-stream", daemon=True
        )
        weakref.finalize(self, _close, self._shelf, self._worker)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        shelf = self._shelf
        if shelf.is_foreign():
            raise ForkedStreamError(
                "this stream was begun before a fork, and its thread lives in the parent alone; "
                "make a new one in the child: buffer.stream(...)"
            )
        with shelf.changed:
            if shelf.process is None and not shelf.is_closed:
                self._worker.start()
                shelf.process = os.getpid()
            item = shelf.take(self._buffer)
        return item.hand_over()

    def close(self) -> None:
        """Ends the thread and the iteration; whoever waits for a batch gets a ``StopIteration``."""
        _close(self._shelf, self._worker)

    def __enter__(self) -> BatchStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Item(NamedTuple):
    """A batch that is ready.

    Attributes:
        batch: as ``sample`` returned it.
        generation: that of the buffer before the draw.
        arrival: set on a CUDA device when the batch is there.
    """

    batch: Any
    generation: int
    arrival: torch.cuda.Event | None

    def hand_over(self) -> Any:
        """The batch, safe to use on the CUDA stream of the calling thread."""
        if self.arrival is not None:
            here = torch.cuda.current_stream(self.arrival.device)
            here.wait_event(self.arrival)
            for tensor in _tensors(self.batch):
                if tensor.is_cuda:
                    tensor.record_stream(here)
        return self.batch


class _Shelf:
    """Where the thread puts batches and takes its orders; all of it is read and written under ``changed``.

    Attributes:
        process: that of the thread, None before it starts.
        attempts: draws begun.
        failure: a draw that failed, and its number; the thread rests until somebody takes it.
    """

    def __init__(self, depth: int) -> None:
        self.changed = threading.Condition()
        self.depth = depth
        self.ready: deque[_Item] = deque()
        self.failure: tuple[BaseException, int] | None = None
        self.attempts = 0
        self.process: int | None = None
        self.is_closed = False

    def is_foreign(self) -> bool:
        return self.process not in (None, os.getpid())

    def await_order(self) -> bool:
        """Returns when another batch is wanted; False when none ever will be."""
        with self.changed:
            while not self.is_closed:
                if self.failure is None and len(self.ready) < self.depth:
                    self.attempts += 1
                    return True
                self.changed.wait()
            return False

    def put(self, item: _Item | BaseException) -> None:
        with self.changed:
            if self.is_closed:
                return
            if isinstance(item, BaseException):
                self.failure = item, self.attempts
            else:
                self.ready.append(item)
            self.changed.notify_all()

    def take(self, buffer: Source) -> _Item:
        """The next batch, waited for if need be; or the error of the draw that it comes from."""
        begun = self.attempts
        while not self.is_closed:
            while self.ready and self.ready[0].generation != _generation(buffer):
                self._make_room()
            if self.ready:
                return self._make_room()
            if self.failure is not None:
                error, attempt = self._forgive()
                if attempt > begun or not isinstance(error, _NOT_NOW):
                    raise error
            self.changed.wait(_LOOK_AGAIN)
        raise StopIteration

    def _make_room(self) -> _Item:
        if self.failure is not None and isinstance(self.failure[0], _NOT_NOW):
            self._forgive()
        self.changed.notify_all()
        return self.ready.popleft()

    def _forgive(self) -> tuple[BaseException, int]:
        """Takes the failure away, so that the thread tries again."""
        failure = self.failure
        assert failure is not None
        self.failure = None
        self.changed.notify_all()
        return failure

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.ready.clear()
            self.failure = None
            self.changed.notify_all()


def _close(shelf: _Shelf, worker: threading.Thread) -> None:
    """Also at exit: a thread must not be in the native core while the interpreter goes."""
    if shelf.is_foreign():
        return  # the lock may be held by a thread of the parent
    shelf.close()
    if shelf.process is not None and worker is not threading.current_thread():
        worker.join(_PATIENCE)


def _work(shelf: _Shelf, reference: weakref.ref[Source], batch_size: int, env: Any) -> None:
    """The thread."""
    limits.this_thread.gives_up = lambda: shelf.is_closed
    side: dict[torch.device, torch.cuda.Stream] = {}
    while shelf.await_order():
        if not _draw(shelf, reference, batch_size, env, side):
            return


def _draw(
    shelf: _Shelf,
    reference: weakref.ref[Source],
    batch_size: int,
    env: Any,
    side: dict[torch.device, torch.cuda.Stream],
) -> bool:
    """Puts one batch, or its error, on the shelf; False where the buffer is gone. Keeps nothing of it."""
    buffer = reference()
    if buffer is None:
        return False
    try:
        generation = _generation(buffer)
        device = getattr(buffer, "device", None)
        if device is None or device.type != "cuda":
            item = _Item(buffer.sample(batch_size, env=env), generation, None)
        else:
            # On a CUDA stream of its own, so that copies do not queue behind the learner's kernels.
            if device not in side:
                side[device] = torch.cuda.Stream(device)
            with torch.cuda.stream(side[device]):
                item = _Item(buffer.sample(batch_size, env=env), generation, side[device].record_event())
    except BaseException as error:
        shelf.put(error)
    else:
        shelf.put(item)
    return True


def _generation(buffer: Source) -> int:
    generation: int = getattr(buffer, "_generation", 0)
    return generation


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a batch, those among its attributes too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple):
        for part in (*value, *getattr(value, "__dict__", {}).values()):
            yield from _tensors(part)
