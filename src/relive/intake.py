"""What callers of `add` and `extend` pass, on its way into the timeline.

Arrays that fit go to the native core as they are. What it does not understand is made into such arrays here, or into an
error, with `relive.inputs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relive import _native, inputs
from relive import infos as infos_of
from relive.spaces import MISFITS, Leaf, Tree
from relive.timeline import Timeline

#: How steps ended: (``done``, or with Gymnasium's words ``terminated``; ``truncated``, or None where infos say which
#: ends are time limits; whether it is Gymnasium's words; infos, or None).
Ends: TypeAlias = tuple[Any, Any, bool, Any]


def read_ends(
    done: Any,
    infos: Any,
    terminated: Any,
    truncated: Any,
    shape: tuple[int, ...],
    *,
    time_limits: bool,
    strict: bool,
    mask: Any = None,
) -> Ends:
    """Sorts out which form the caller used.

    Args:
        done: flags, in the seed's form.
        infos: beside ``done``.
        terminated: flags, in Gymnasium's form.
        truncated: flags, in Gymnasium's form.
        shape: of flags, where one of the two is missing.
        time_limits: whether an end by a time limit counts as not terminated; else it is an end like any other.
        strict: refuse flags other than 0 and 1.
        mask: of `ReplayBuffer.add`.

    Raises:
        TypeError: neither form, or both.
    """
    if terminated is None and truncated is None:
        if done is None:
            raise TypeError("got neither done nor terminated, expected to be told whether the episode ended")
        return done, None, False, infos if time_limits else None
    if done is not None or infos is not None:
        raise TypeError("got done or infos beside terminated or truncated, expected one form or the other")
    nothing = np.zeros(shape, bool)
    terminated = nothing if terminated is None else terminated
    truncated = nothing if truncated is None else truncated
    if time_limits:
        return terminated, truncated, True, None
    active = None if mask is None else inputs.lane_mask(mask, shape[-1])
    ended = inputs.flags(terminated, "terminated", shape, strict, active)
    cut = inputs.flags(truncated, "truncated", shape, strict, active)
    return ended + cut > 0, nothing, True, None


def parts(tree: Tree, value: Any) -> Any:
    """What the core takes for a value: itself for a space of one leaf, else its parts; None where it has others."""
    if tree.is_leaf:
        return value
    try:
        return tree.flatten(value)
    except MISFITS:
        return None


def append_converted(
    timeline: Timeline,
    obs: Any,
    next_obs: Any,
    action: Any,
    reward: Any,
    ends: Ends,
    mask: Any,
    *,
    steps: int | None,
    strict: bool,
    extras: Any = None,
    breaks: _native.Breaks | None = None,
) -> None:
    """Converts what the core did not understand, and stores it.

    Args:
        timeline: where to.
        obs: and all that follow: as `ReplayBuffer.add` takes them, for ``steps`` not None as `extend` does.
        next_obs: see there.
        action: see there.
        reward: see there.
        ends: see there.
        mask: see there.
        steps: None for one step.
        strict: errors in place of casts.
        extras: values of the declared fields, by name.
        breaks: what is done about steps that do not follow on.

    Raises:
        ShapeError, CastError, NaNRewardError: it does not fit; nothing was stored.
    """
    lanes = timeline.lanes
    leading = (lanes,) if steps is None else (steps, lanes)
    first, second, words, infos = ends
    names = ("terminated", "truncated") if words else ("done", "timeout")
    active = None if mask is None else inputs.lane_mask(mask, lanes)
    if second is not None:
        second = inputs.flags(second, names[1], leading, strict, active)
    elif steps is None:
        second = infos_of.timeouts(infos, lanes, strict, active)
    else:
        second = infos_of.many_timeouts(infos, steps, lanes, strict)
    observation, actions = timeline.observation, timeline.action
    stored = timeline.append(
        _plain(observation, inputs.tree_arrays(obs, observation, leading, strict, name="obs", active=active)),
        _plain(observation, inputs.tree_arrays(next_obs, observation, leading, strict, name="next_obs", active=active)),
        _plain(
            actions, inputs.tree_arrays(action, actions, leading, strict, name="action", is_action=True, active=active)
        ),
        _writable(inputs.rewards(reward, leading, strict, active, shape=timeline.reward_shape)),
        _writable(inputs.flags(first, names[0], leading, strict, active)),
        _writable(second),
        words,
        None,
        active,
        False,  # checked here
        -1 if steps is None else steps,
        tuple(_writable(array) for array in inputs.extras(extras, timeline.extra, leading, strict, active)),
        breaks,
    )
    assert stored or steps == 0, "converted arrays are what the core takes"


def extra_parts(tree: Tree, extras: Any) -> Any:
    """What the core takes for declared fields: their arrays in order; None where they are not what was declared."""
    if not tree.leaves:
        return None
    try:
        return tree.flatten(extras)
    except MISFITS:
        return None


def with_infos(
    extras: Any,
    infos: Any,
    wanted: Sequence[tuple[str, Leaf]],
    leading: tuple[int, ...],
    active: NDArray[np.bool_] | None = None,
) -> Any:
    """The declared fields with those that are read from infos."""
    given = inputs.declared(extras)
    if not wanted:
        return extras
    return {**given, **{name: infos_of.values(infos, leaf, name, leading, active) for name, leaf in wanted}}


def _plain(tree: Tree, arrays: Sequence[NDArray[Any]]) -> Any:
    contiguous = tuple(_writable(array) for array in arrays)
    return contiguous[0] if tree.is_leaf else contiguous


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """NumPy lends out no read-only array to the core."""
    return np.require(array, requirements=["C", "W"])
