"""Where the bytes of a buffer lie."""

from relive.storage.memory import Memory

__all__ = ["Memory"]
