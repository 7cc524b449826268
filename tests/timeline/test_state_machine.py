"""A replay buffer and its slow twin live the same life; after each step every transition held is compared."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray

import relive
from relive import layout
from tests import zoo
from tests.reference.transitions import TransitionRing

POOL = 8  # so few different observations that they repeat, and match by chance
MATCHES = st.sampled_from([0.0, 0.5, 1.0])  # how often a step's observation is what its lane saw last
SEEDS = st.integers(0, 2**32 - 1)
TOLERANCES = st.sampled_from([0.0, 0.5, 3.0, 1e9])
FORMS = st.sampled_from(["infos", "dict of infos", "terminated and truncated", "terminated", "done alone"])
CARRIERS = st.sampled_from(["array", "torch tensor", "strided", "read-only"])


def observation_pool(space: spaces.Space, rng: np.random.Generator) -> list[NDArray]:
    """For every leaf ``(POOL, *stored shape)``; with zeros, and for floats minus zeros and two kinds of NaN."""
    pool = []
    for leaf in zoo.leaf_spaces(space):
        items = zoo.numbers(rng, leaf, (POOL,)).reshape(POOL, *zoo.stored_shape(leaf))
        items[0] = 0
        if items.dtype.kind == "f":
            items[1] = -0.0
            items[2] = np.nan
            bits = items[3:4].view(f"u{items.itemsize}")
            bits[...] = np.array(np.nan, items.dtype).view(bits.dtype) + 1  # another NaN
        pool.append(items)
    return pool


def same_bytes(got: Any, expected: NDArray, what: str) -> None:
    got = np.asarray(got)
    assert got.shape == expected.shape, what
    assert got.dtype == expected.dtype, what
    assert got.tobytes() == expected.tobytes(), f"{what}: {got.tolist()} instead of {expected.tolist()}"


class ReplayBufferLife(RuleBasedStateMachine):
    """What can happen to a replay buffer."""

    @initialize(
        observation=st.sampled_from(sorted(zoo.OBSERVATION_SPACES)),
        action=st.sampled_from(sorted(zoo.ACTION_SPACES)),
        rows=st.integers(1, 6),
        lanes=st.integers(1, 5),
        surplus=st.integers(0, 4),
        handles_timeouts=st.booleans(),
        seed=SEEDS,
    )
    def begin(
        self,
        observation: str,
        action: str,
        rows: int,
        lanes: int,
        surplus: int,
        handles_timeouts: bool,
        seed: int,
    ) -> None:
        self.space, self.action_space = zoo.OBSERVATION_SPACES[observation], zoo.ACTION_SPACES[action]
        self.rows, self.lanes = rows, lanes
        self.buffer = relive.ReplayBuffer(
            rows * lanes + min(surplus, lanes - 1),
            self.space,
            self.action_space,
            device="cpu",
            n_envs=lanes,
            handle_timeout_termination=handles_timeouts,
        )
        self.pool = observation_pool(self.space, np.random.default_rng(seed))
        self.width = int(np.prod(zoo.stored_shape(self.action_space)))
        self.action_dtype = np.dtype(np.float32 if self.action_space.dtype == np.float64 else self.action_space.dtype)
        self.twin = TransitionRing(
            rows,
            lanes,
            [np.zeros(items.shape[1:], items.dtype) for items in self.pool],
            [np.zeros(self.width, self.action_dtype)],
        )
        self.last_seen = np.zeros(lanes, int)
        self.meaning: dict[int, int] = {}  # handle -> serial of the transition
        self.left_behind: list[tuple[relive.ReplayBuffer, list[bytes]]] = []
        self.finals_are_counted = True

    # Adding --------------------------------------------------------------------------------------------------------

    @rule(seed=SEEDS, matches=MATCHES, form=FORMS, carrier=CARRIERS)
    def add(self, seed: int, matches: float, form: str, carrier: str) -> None:
        steps = self.new_steps(seed, 1, matches, form)
        self.buffer.add(*self.arguments(steps, carrier, 0), **self.ends(steps, 0))
        self.twin.extend(*steps["expected"])

    @rule(seed=SEEDS, matches=MATCHES, form=FORMS, data=st.data())
    def add_some_lanes(self, seed: int, matches: float, form: str, data: st.DataObject) -> None:
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=self.lanes, max_size=self.lanes)))
        steps = self.new_steps(seed, 1, matches, form, mask)
        arguments = self.arguments(steps, "array", 0)
        arguments[3][~mask] = np.nan  # nobody reads it there
        self.buffer.add(*arguments, mask=mask, **self.ends(steps, 0))
        observation, successor, action, *rest = steps["expected"]
        self.twin.append(
            [leaf[0] for leaf in observation],
            [leaf[0] for leaf in successor],
            [leaf[0] for leaf in action],
            *(part[0] for part in rest),
            mask=mask,
        )

    @rule(seed=SEEDS, matches=MATCHES, form=FORMS, carrier=CARRIERS, data=st.data())
    def extend(self, seed: int, matches: float, form: str, carrier: str, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, 2 * self.rows + 2), label="steps")
        steps = self.new_steps(seed, count, matches, form)
        self.buffer.extend(*self.arguments(steps, carrier, slice(None)), **self.ends(steps, slice(None)))
        self.twin.extend(*steps["expected"])

    @precondition(lambda self: all(step.interrupted is not None for step in self.twin.held()))
    @rule(seed=SEEDS, matches=MATCHES, form=FORMS, carrier=CARRIERS, tolerance=TOLERANCES, data=st.data())
    def extend_and_detect_breaks(
        self, seed: int, matches: float, form: str, carrier: str, tolerance: float, data: st.DataObject
    ) -> None:
        count = data.draw(st.integers(0, 2 * self.rows + 2), label="steps")
        steps = self.new_steps(seed, count, matches, form)
        arguments, ends = self.arguments(steps, carrier, slice(None)), self.ends(steps, slice(None))
        found = self.buffer.extend(*arguments, **ends, breaks="detect", breaks_tolerance=tolerance)
        assert found == self.twin.extend(*steps["expected"], tolerance=tolerance)

    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        lanes = data.draw(st.sets(st.integers(0, self.lanes - 1)))
        self.buffer.interrupt(sorted(lanes))
        for lane in lanes:
            self.twin.interrupt(lane)

    @rule(
        seed=SEEDS,
        fault=st.sampled_from(["obs", "next_obs", "action", "reward", "NaN", "done", "infos", "mask", "parts"]),
        many=st.booleans(),
    )
    def refused(self, seed: int, fault: str, many: bool) -> None:
        """What does not fit changes nothing."""
        steps = self.new_steps(seed, 2, 0.5, "infos", np.zeros(self.lanes, bool))
        where = slice(None) if many else 0
        arguments, ends = self.arguments(steps, "array", where), self.ends(steps, where)
        options: dict[str, Any] = {}

        def one_too_many(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: one_too_many(part) for key, part in value.items()}
            if isinstance(value, tuple):
                return tuple(one_too_many(part) for part in value)
            return np.concatenate([value, value[:1]])

        if fault in ("obs", "next_obs", "action", "reward"):
            index = ["obs", "next_obs", "action", "reward"].index(fault)
            bad = one_too_many(arguments[index])
            if many and fault == "obs":
                arguments[3] = arguments[3][:1]  # the length of obs says how many steps there are
            else:
                arguments[index] = bad
        elif fault == "NaN":
            arguments[3][..., -1] = np.nan
        elif fault == "done":
            ends["done"] = np.full(np.shape(ends["done"]), 0.5)
        elif fault == "infos":
            ends["infos"] = ends["infos"] + ends["infos"]
        elif fault == "mask" and not many:
            options["mask"] = np.ones(self.lanes + 1, bool)
        elif fault == "parts" and isinstance(self.space, spaces.Dict):
            arguments[0] = {key: part for key, part in arguments[0].items() if key != next(iter(self.space))}
            if many:
                return  # covered by add
        else:
            return
        if fault == "infos" and not self.buffer.handle_timeout_termination:
            return  # not read then
        call = self.buffer.extend if many else self.buffer.add
        with pytest.raises(relive.ReliveError):
            call(*arguments, **ends, **options)

    # Changing what is held -----------------------------------------------------------------------------------------

    @rule()
    def reset(self) -> None:
        self.buffer.reset()
        self.twin.reset()
        self.finals_are_counted = True

    @rule(seed=SEEDS, field=st.sampled_from(["reward", "done", "timeout", "action"]))
    def relabel(self, seed: int, field: str) -> None:
        """Some held steps, some of them twice, and some that are not held any more."""
        rng = np.random.default_rng(seed)
        held = {step.serial: step for step in self.twin.held()}
        handles = np.array(sorted(self.meaning), np.int64)
        if not len(handles):
            return
        chosen = rng.choice(handles, size=rng.integers(1, 2 * len(handles) + 1))
        if field == "action":
            values = zoo.values(rng, self.action_space, (len(chosen),))
            stored = values.reshape(len(chosen), self.width).astype(self.action_dtype)
        else:
            values = stored = rng.integers(0, 2, len(chosen)).astype(np.float32)
        stale = self.buffer.set(chosen, **{field: values})
        is_held = self.buffer.held_handles(chosen)
        assert stale == np.count_nonzero(~is_held)
        for handle, value, holds in zip(chosen.tolist(), stored, is_held, strict=True):
            if holds:
                step = held[self.meaning[handle]]
                setattr(step, field, [value.copy()] if field == "action" else np.float32(value))

    @rule(seed=SEEDS, name=st.sampled_from(["rewards", "dones", "timeouts"]), way=st.sampled_from("=+["))
    def write_numbers(self, seed: int, name: str, way: str) -> None:
        """Whole assignment, ``+=``, and writes through the array."""
        rng = np.random.default_rng(seed)
        values = rng.integers(-3, 4, (self.rows, self.lanes)).astype(np.float32)
        expected = getattr(self.buffer, name) + values if way == "+" else values.copy()
        if way == "=":
            setattr(self.buffer, name, values)
        elif way == "+":
            array = getattr(self.buffer, name)
            array += values
            setattr(self.buffer, name, array)  # what `buffer.rewards += values` does
        else:
            for row in range(self.rows):
                getattr(self.buffer, name)[row] = values[row]
        self.twin.assign(name.removesuffix("s"), None, expected)

    @rule(seed=SEEDS, what=st.sampled_from(["observation", "successor"]), data=st.data())
    def assign_observations(self, seed: int, what: str, data: st.DataObject) -> None:
        """The observations or next observations of all rows, or one key of a Dict."""
        name = {"observation": "observations", "successor": "next_observations"}[what]
        chosen = np.random.default_rng(seed).integers(0, POOL, (self.rows, self.lanes))
        arrays = [items[chosen] for items in self.pool]
        if isinstance(self.space, spaces.Dict) and data.draw(st.booleans(), label="one key"):
            key = data.draw(st.sampled_from(list(self.space.spaces)), label="key")
            owners = [key_of for key_of, child in self.space.spaces.items() for _ in zoo.leaf_spaces(child)]
            getattr(self.buffer, name)[key] = zoo.nest(self.space, arrays)[key]
            for leaf, owner in enumerate(owners):
                if owner == key:
                    self.twin.assign(what, leaf, arrays[leaf])
        else:
            setattr(self.buffer, name, zoo.nest(self.space, arrays))
            for leaf, array in enumerate(arrays):
                self.twin.assign(what, leaf, array)
        self.finals_are_counted = False

    @rule()
    def rebuild(self) -> None:
        self.buffer.rebuild()

    # Setting the position ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.twin.in_lockstep)
    @rule(seed=SEEDS, full=st.booleans(), data=st.data())
    def load_by_hand(self, seed: int, full: bool, data: st.DataObject) -> None:
        """Code in the wild fills the arrays and then sets ``pos`` and ``full``."""
        position = data.draw(st.integers(0, self.rows - 1), label="pos")
        rng = np.random.default_rng(seed)
        shape = (self.rows, self.lanes)
        arrays = {
            what: [items[rng.integers(0, POOL, shape)] for items in self.pool] for what in ("observation", "successor")
        }
        actions = zoo.values(rng, self.action_space, shape)
        actions = actions.reshape(*shape, self.width).astype(self.action_dtype)
        fields = {name: rng.integers(0, 2, shape).astype(np.float32) for name in ("reward", "done", "timeout")}
        self.buffer.observations = zoo.nest(self.space, arrays["observation"])
        self.buffer.next_observations = zoo.nest(self.space, arrays["successor"])
        self.buffer.actions = actions
        self.buffer.rewards, self.buffer.dones = fields["reward"], fields["done"]
        self.buffer.timeouts[:] = fields["timeout"]
        self.twin.fill({**arrays, "action": [actions], **fields})
        self.declare(position, full)

    @precondition(lambda self: self.twin.in_lockstep and self.twin.knows_every_row)
    @rule(data=st.data())
    def set_position(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, self.rows - 1), label="pos")
        self.buffer.pos = position
        self.twin.declare(position, self.twin.count[0] == self.rows)
        self.finals_are_counted = False

    @precondition(lambda self: self.twin.in_lockstep and self.twin.knows_every_row)
    @rule(full=st.booleans())
    def set_full(self, full: bool) -> None:
        self.buffer.full = full
        if full != (self.twin.count[0] == self.rows):
            self.twin.declare(self.twin.position[0], full)
        self.finals_are_counted = False

    def declare(self, position: int, full: bool) -> None:
        self.buffer.pos = position
        self.buffer.full = full
        self.twin.declare(position, full)
        self.finals_are_counted = False

    # Copies --------------------------------------------------------------------------------------------------------

    @rule(way=st.sampled_from(["pickle", "deepcopy"]))
    def go_on_with_a_copy(self, way: str) -> None:
        """The copy lives on; the original is left behind, and must not change."""
        self.left_behind.append((self.buffer, self.content(self.buffer)))
        handles = self.buffer.handles()
        if way == "pickle":
            self.buffer = pickle.loads(pickle.dumps(self.buffer))
        else:
            self.buffer = copy.deepcopy(self.buffer)
        assert self.buffer.handles().tolist() == handles.tolist()
        self.twin.forget_rows_not_held()
        self.finals_are_counted = False

    # What holds at any time ----------------------------------------------------------------------------------------

    @invariant()
    def every_transition_is_right(self) -> None:
        held = self.twin.held()
        handles = self.buffer.handles()
        assert len(handles) == len(held) == len(self.buffer) == self.buffer.num_transitions
        if held:
            batch = self.buffer.transitions(handles)
            self.same_leaves(batch.observations, [step.observation for step in held], "observations")
            self.same_leaves(batch.next_observations, [step.successor for step in held], "next_observations")
            same_bytes(batch.actions, np.stack([step.action[0] for step in held]), "actions")
            column = np.array([[step.reward, step.done, step.timeout] for step in held])
            same_bytes(batch.rewards, column[:, :1], "rewards")
            same_bytes(batch.dones, column[:, 1:2] * (1 - column[:, 2:]), "dones")

    @invariant()
    def every_array_is_right(self) -> None:
        places = [(row, lane) for lane in range(self.lanes) for row in self.twin.rows_held(lane)]
        held = self.twin.held()
        if not held:
            return
        rows, lanes = np.array(places).T
        buffer = self.buffer
        for name, what in (("observations", "observation"), ("next_observations", "successor")):
            arrays = zoo.leaves(self.space, getattr(buffer, name))
            for leaf, (array, items) in enumerate(zip(arrays, self.pool, strict=True)):
                assert array.shape == (self.rows, self.lanes, *items.shape[1:])
                expected = np.stack([getattr(step, what)[leaf] for step in held])
                same_bytes(np.asarray(array)[rows, lanes], expected, f"{name}, leaf {leaf}")
        same_bytes(buffer.actions[rows, lanes], np.stack([step.action[0] for step in held]), "actions")
        for name in ("reward", "done", "timeout"):
            expected = np.array([getattr(step, name) for step in held])
            same_bytes(getattr(buffer, name + "s")[rows, lanes], expected, name)
        flags = buffer._timeline.view(layout.FLAGS)[rows, lanes]
        for flag, step in zip(flags.tolist(), held, strict=True):
            assert step.interrupted is None or step.interrupted == (flag == layout.INTERRUPTED)

    @invariant()
    def sizes_are_right(self) -> None:
        twin, buffer = self.twin, self.buffer
        assert buffer.lane_sizes.tolist() == twin.count
        if twin.in_lockstep:
            assert (buffer.pos, buffer.size()) == (twin.position[0], twin.count[0])
            assert buffer.full is (twin.count[0] == self.rows)
        else:
            for ask in (lambda: buffer.pos, lambda: buffer.full, buffer.size):
                with pytest.raises(relive.errors.LanesDifferError, match="lane_sizes"):
                    ask()

    @invariant()
    def a_handle_never_comes_to_mean_another_step(self) -> None:
        now = dict(zip(self.buffer.handles().tolist(), (s.serial for s in self.twin.held()), strict=True))
        assert all(self.meaning.get(handle, serial) == serial for handle, serial in now.items())
        self.meaning.update(now)
        stale = [handle for handle in self.meaning if handle not in now]
        every = list(now) + stale
        assert self.buffer.held_handles(every).tolist() == [True] * len(now) + [False] * len(stale)
        if stale:
            with pytest.raises(relive.errors.StaleHandleError, match=f"{len(stale)} of {len(every)} handles"):
                self.buffer.transitions(every)

    @invariant()
    def draws_are_held_transitions(self) -> None:
        held = self.twin.held()
        if not held:
            with pytest.raises(relive.errors.EmptyBufferError):
                self.buffer.sample(1)
            return
        batch = self.buffer.sample(5)
        known = {
            tuple(part.tobytes() for part in (step.reward, *step.action, *step.observation, *step.successor))
            for step in held
        }
        parts = [batch.rewards, batch.actions]
        parts += zoo.leaves(self.space, batch.observations) + zoo.leaves(self.space, batch.next_observations)
        for row in range(5):
            assert tuple(part[row].numpy().tobytes() for part in parts) in known

    @invariant()
    def successors_are_kept_apart_only_where_they_must_be(self) -> None:
        if self.finals_are_counted:
            _, _, live = self.buffer._timeline.core.finals()
            assert live == self.lanes + self.twin.successors_kept_apart()

    def teardown(self) -> None:
        for buffer, content in getattr(self, "left_behind", []):
            assert self.content(buffer) == content

    # Help ----------------------------------------------------------------------------------------------------------

    def new_steps(
        self, seed: int, count: int, matches: float, form: str, mask: NDArray | None = None
    ) -> dict[str, Any]:
        """Steps of every lane: what the buffer is given, and under "expected" what it should hold."""
        rng = np.random.default_rng(seed)
        shape = (count, self.lanes)
        successor = rng.integers(0, POOL, shape)
        before = np.concatenate([self.last_seen[None], successor])[:-1] if count else successor
        observation = np.where(rng.random(shape) < matches, before, rng.integers(0, POOL, shape))
        if count:
            self.last_seen = np.where(True if mask is None else mask, successor[-1], self.last_seen)
        first, second = rng.random((2, *shape)) < 0.3
        if form == "terminated and truncated":
            done, timeout = first | second, second & ~first
        elif form in ("terminated", "done alone"):
            done, timeout = first, np.zeros(shape, bool)
        else:
            done, timeout = first, second
        if not self.buffer.handle_timeout_termination:
            timeout = np.zeros(shape, bool)
        actions = zoo.values(rng, self.action_space, shape)
        rewards = rng.standard_normal(shape).astype(np.float32)
        stored_actions = actions.reshape(*shape, self.width).astype(self.action_dtype)
        return {
            "observation": [items[observation] for items in self.pool],
            "successor": [items[successor] for items in self.pool],
            "action": actions,
            "reward": rewards,
            "flags": (first, second),
            "form": form,
            "expected": (
                [items[observation] for items in self.pool],
                [items[successor] for items in self.pool],
                [stored_actions],
                rewards,
                done,
                timeout,
            ),
        }

    def arguments(self, steps: dict[str, Any], carrier: str, where: int | slice) -> list[Any]:
        """obs, next_obs, action, reward for one step (an int) or for all (a slice)."""

        def carried(array: NDArray) -> Any:
            array = array[where].copy()
            if carrier == "torch tensor":
                return torch.from_numpy(array)
            if carrier == "strided":
                wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]) if array.ndim else (), array.dtype)
                wide[..., ::2] = array
                return wide[..., ::2]
            if carrier == "read-only":
                array.flags.writeable = False
            return array

        leading = 2 if isinstance(where, slice) else 1
        nested = []
        for what in ("observation", "successor"):
            parts = [
                # A Discrete observation is one number, not an array of one.
                carried(part)[..., 0] if isinstance(leaf, spaces.Discrete) else carried(part)
                for part, leaf in zip(steps[what], zoo.leaf_spaces(self.space), strict=True)
            ]
            nested.append(zoo.nest(self.space, parts))
        assert np.ndim(steps["reward"][where]) == leading
        return [*nested, carried(steps["action"]), carried(steps["reward"])]

    def ends(self, steps: dict[str, Any], where: int | slice) -> dict[str, Any]:
        first, second = (flags[where] for flags in steps["flags"])
        if steps["form"] == "terminated and truncated":
            return {"terminated": first, "truncated": second}
        if steps["form"] == "terminated":
            return {"terminated": first}
        if steps["form"] == "done alone":
            return {"done": first}
        if steps["form"] == "dict of infos":
            return {"done": first, "infos": {"TimeLimit.truncated": second}}

        def info(flag: bool) -> dict[str, Any]:
            return {"TimeLimit.truncated": bool(flag)} if flag else {"other": 1}

        if isinstance(where, slice):
            return {"done": first, "infos": [[info(flag) for flag in step] for step in second]}
        return {"done": first, "infos": [info(flag) for flag in second]}

    def same_leaves(self, value: Any, expected: list[list[NDArray]], what: str) -> None:
        for leaf, part in enumerate(zoo.leaves(self.space, value)):
            same_bytes(part, np.stack([parts[leaf] for parts in expected]), f"{what}, leaf {leaf}")

    def content(self, buffer: relive.ReplayBuffer) -> list[bytes]:
        batch = buffer.transitions(buffer.handles())
        parts = zoo.leaves(self.space, batch.observations) + zoo.leaves(self.space, batch.next_observations)
        return [part.numpy().tobytes() for part in (*parts, batch.actions, batch.rewards, batch.dones)]


TestReplayBufferLife = ReplayBufferLife.TestCase
TestReplayBufferLife.settings = settings()
