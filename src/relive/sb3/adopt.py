"""What Stable-Baselines3's buffers pickle, a plain dict of attributes, made into the state of relive's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from relive.buffers.rollout_ends import RolloutEnds
from relive.devices import restored
from relive.randomness import Stream
from relive.spaces import Tree, action_tree, observation_tree
from relive.timeline import Timeline

if TYPE_CHECKING:
    from relive.buffers.replay import ReplayMethods

_FIELDS = {"rewards": "reward", "dones": "done", "timeouts": "timeout"}
_STORED = {"observations", "next_observations", "actions", *_FIELDS, "pos", "full"}


def is_foreign(state: dict[str, Any]) -> bool:
    """Whether a buffer of Stable-Baselines3 wrote this state: there ``device`` is an attribute, here a property."""
    return "device" in state


def replay(buffer: ReplayMethods, state: dict[str, Any]) -> dict[str, Any]:
    """Brings the steps of ``state`` into ``buffer``, which is bare, and returns the other attributes.

    Stored dtypes stay what they were, also where today's Stable-Baselines3 would choose others.

    With ``optimize_memory_usage`` a full ring has overwritten the observation of its oldest step, which therefore is
    not one any more, and is left out: `full` becomes True with the next step added.
    """
    rows, pos, full = state["buffer_size"], int(state["pos"]), bool(state["full"])
    observation = _as_stored(state["observation_space"], state["observations"])
    action = action_tree(state["action_space"], {"action": state["actions"].dtype})
    timeline = Timeline(observation, action, rows, state["n_envs"])
    written = slice(rows if full else pos)
    observations = observation.flatten(state["observations"])
    for leaf, array in zip(observation.leaves, observations, strict=True):
        timeline.view(leaf.path)[written] = array[written]
    timeline.view(action.leaves[0].path)[written] = state["actions"][written]
    for name, field in _FIELDS.items():
        if name in state:  # `timeouts` came with 1.3
            timeline.view(field)[written] = state[name][written]

    successors, held = state.get("next_observations"), rows if full else pos
    if successors is None:
        nexts = [np.roll(array, -1, axis=0) for array in observations]
        held -= full
    else:
        nexts = [np.ascontiguousarray(array) for array in observation.flatten(successors)]
    timeline.declare(pos, held)
    timeline.assign_successors(nexts)
    timeline.rebuild()

    buffer._timeline = timeline
    rest = {name: value for name, value in state.items() if name not in _STORED}
    rest.setdefault("optimize_memory_usage", False)
    rest.setdefault("handle_timeout_termination", False)  # before 1.3
    return _with_ours(rest)


def rollout(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a rollout buffer: all its arrays are attributes here too."""
    ends = RolloutEnds(state["buffer_size"], state["n_envs"])
    return _with_ours({**state, "_dtypes": None, "_ends": ends})


def _with_ours(state: dict[str, Any]) -> dict[str, Any]:
    place = restored(str(state.pop("device")))
    return {**state, "_place": place, "validate": "seed", "_stream": Stream(None)}


def _as_stored(space: spaces.Space[Any], observations: Any) -> Tree:
    """The leaves of an observation, in the dtypes of these arrays."""
    tree = observation_tree(space, {"observation": np.uint8})  # whatever its dtype
    parts = zip(tree.leaves, tree.flatten(observations), strict=True)
    return observation_tree(space, {leaf.path: array.dtype for leaf, array in parts})
