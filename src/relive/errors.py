"""What relive raises. Each error also is the built-in type that the seed module raises at the same place."""

from __future__ import annotations

import pickle


class ReliveError(Exception):
    """Base of all errors of relive."""


class EmptyBufferError(ReliveError, ValueError):
    """A draw from a buffer that holds no step."""


class ShapeError(ReliveError, ValueError):
    """An argument whose shape does not fit."""


class CastError(ReliveError, ValueError):
    """A value that the stored dtype cannot hold."""


class NaNRewardError(ReliveError, ValueError):
    """A reward that is not a number."""


class UnsupportedSpaceError(ReliveError, NotImplementedError):
    """A space whose samples have no fixed shape, or a dtype that torch does not have."""


class WrongSpaceError(ReliveError, AssertionError, TypeError):
    """A space that belongs to another buffer class."""


class LanesDifferError(ReliveError, ValueError):
    """``pos``, ``full`` or ``size()`` asked of lanes that are not at the same step."""


class StaleHandleError(ReliveError, LookupError):
    """A handle whose step was overwritten or forgotten."""


class RolloutFullError(ReliveError, IndexError):
    """An add to a rollout that is full."""


class RolloutNotFullError(ReliveError, AssertionError):
    """Minibatches asked of a rollout that is not full."""


class FinalValueError(ReliveError, ValueError):
    """A truncated step of a rollout whose final observation has no value."""


class EpisodeStartError(ReliveError, ValueError):
    """A step of a rollout that begins an episode although the one before it did not end."""


class MemoryWarning(UserWarning):
    """A buffer that will not fit into memory."""


class DeviceError(ReliveError, RuntimeError):
    """A device that this machine does not have."""


class DeviceWarning(UserWarning):
    """A buffer that was loaded on a machine without its device."""


class BreaksWarning(UserWarning):
    """Steps that do not follow on from the ones before, where no end was said."""


class PriorityError(ReliveError, ValueError):
    """A priority that is negative, not finite, or too large for a sum of masses."""


class FunctionNotPickledError(ReliveError, pickle.PicklingError, TypeError):
    """A pickle of options that hold a function which pickle cannot take."""


class ReadOnlyError(ReliveError, AttributeError):
    """An attribute that cannot be assigned any more, since it says how memory was laid out or what was counted."""


class NothingEligibleError(EmptyBufferError, RuntimeError):
    """A draw from a buffer that holds steps, none of which the draw may take."""


class RateLimitError(ReliveError, RuntimeError):
    """A limiter that does not let a call through: it refuses, two calls wait for each other, or it was closed."""


class RateLimitTimeoutError(RateLimitError, TimeoutError):
    """A call that waited for its limiter for too long."""


class LimiterClosedError(RateLimitError):
    """A call to a limiter that was closed, before or while it waited."""


class ForkedStreamError(ReliveError, RuntimeError):
    """A stream used in a forked child, which does not have its thread."""


class ForeignPickleError(ReliveError, pickle.UnpicklingError):
    """A pickle that holds more than a replay buffer of Stable-Baselines3 does."""
