"""What is made of stored steps when they are asked for."""

from relive.views.derived import DerivedArray, successors

__all__ = ["DerivedArray", "successors"]
