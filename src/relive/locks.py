"""A mutex that does not stand in the way of copies, pickles and forks."""

from __future__ import annotations

import os
import threading
from typing import Any


class Lock:
    """A reentrant mutex; a copy and a pickle of it are new ones, and a forked child finds it open."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._mutex = threading.RLock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]  # whoever held it is no thread of this process
        self._mutex.acquire()

    def __exit__(self, *error: object) -> None:
        self._mutex.release()

    def __reduce__(self) -> Any:
        return Lock, ()
