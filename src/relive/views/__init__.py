"""What is made of stored steps when they are asked for."""

from relive.views.derived import DerivedArray, successors
from relive.views.hindsight import Hindsight

__all__ = ["DerivedArray", "Hindsight", "successors"]
