"""What assigning a public attribute of a buffer does, once the buffer holds memory.

What an attribute shows has its effect: a new value counts from the next call on, or it is refused with the reason. Only
assignments pass here; attributes are read from the instance, as fast as ever.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from relive.discounts import check, checked_gamma
from relive.errors import ReadOnlyError
from relive.randomness import Stream

#: Takes the buffer and what is assigned to what it is from then on, or raises.
Rule: TypeAlias = Callable[[Any, Any], Any]


def checked_n_steps(n_steps: Any) -> int:
    """The steps of a return, as the constructor takes them.

    Raises:
        ValueError, TypeError: no whole number from 1 on.
    """
    if operator.index(n_steps) < 1:
        raise ValueError(f"n_steps is {n_steps}, expected 1 or more")
    return operator.index(n_steps)


def checked_validate(validate: Any) -> Any:
    """How strictly arguments are checked.

    Raises:
        ValueError: neither of both.
    """
    if validate not in ("strict", "seed"):
        raise ValueError(f"validate is {validate!r}, expected 'strict' or 'seed'")
    return validate


def fixed(name: str, advice: str) -> Rule:
    """Refuses every value but the one that is there.

    Args:
        name: of the attribute.
        advice: why, and what to do.
    """

    def rule(buffer: Any, value: Any) -> Any:
        there = getattr(buffer, name, None)
        if value is there or (type(value) is type(there) and value == there):
            return there
        raise ReadOnlyError(f"{name} of a {type(buffer).__name__} is {there!r} and cannot be assigned: {advice}")

    return rule


def _seeded(buffer: Any, seed: Any) -> Any:
    # Stable-Baselines3's buffers have no seed: where they are stood in for, the name is the caller's own.
    if buffer.validate != "seed":
        buffer._stream = Stream(seed)
        buffer._usual = None
    return seed


def _discount(buffer: Any, gamma: Any) -> float | str:
    checked = checked_gamma(gamma, buffer._fields_by_name)
    if isinstance(checked, str) and buffer.validate == "strict":  # what was stored so far was not looked at
        check({checked: buffer._timeline.view(buffer._fields_by_name[checked].path)}, checked)
    return checked


_MEMORY = "it says how the memory is laid out; make another buffer, and fill it with extend"

#: Of everything that stores steps.
STORING: Mapping[str, Rule] = {
    "seed": _seeded,
    "validate": lambda buffer, value: checked_validate(value),
    **{
        name: fixed(name, _MEMORY)
        for name in ("buffer_size", "n_envs", "observation_space", "action_space", "obs_shape", "action_dim")
    },
}

#: Of what draws from a timeline.
DRAWING: Mapping[str, Rule] = {
    "n_steps": lambda buffer, value: buffer._with_returns(checked_n_steps(value), buffer.gamma)[0],
    "gamma": lambda buffer, value: buffer._with_returns(buffer.n_steps, _discount(buffer, value))[1],
    "sampler": fixed(
        "sampler",
        "priorities and epochs lie beside the steps; assign its own attributes (alpha, beta, eps, ...), or make "
        "another buffer and fill it with extend",
    ),
    "hindsight": fixed(
        "hindsight",
        "what it needs is stored with each step; assign its own attributes (compute_reward, strategy, n_sampled_goal, "
        "...), or make another buffer",
    ),
    "max_times_sampled": fixed(
        "max_times_sampled", "draws were counted so far by it, or not at all; make another buffer"
    ),
    "reward_shape": fixed("reward_shape", _MEMORY),
}

_NO_NEIGHBOURS = "a reservoir keeps single transitions, whose neighbours are gone; use ReplayBuffer"

#: Of a reservoir, which has none of these options.
RESERVOIR: Mapping[str, Rule] = {
    **STORING,
    **{name: fixed(name, _NO_NEIGHBOURS) for name in ("n_steps", "hindsight")},
    "sampler": fixed("sampler", "a reservoir draws uniformly; use ReplayBuffer"),
}
