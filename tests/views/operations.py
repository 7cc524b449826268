"""What can happen to a real buffer and to its slow twin alike."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.views import Lanes, Step, stack
from tests.views.worlds import ACTIONS, FIELDS, Config, make, observation


class Operations:
    """A buffer and its twin, and everything that can happen to them.

    Args:
        config: what the buffer is like.
        options: arguments of the constructor that say otherwise.
    """

    def __init__(self, config: Config, **options: Any) -> None:
        self.config = config
        self.buffer = make(config, **options)
        self.twin = Lanes(config.rows, config.lanes)
        self.breaks = 0  # that the twin found

    # Adding --------------------------------------------------------------------------------------------------------

    def new_step(
        self, rng: np.random.Generator, lane: int, ends: float, follows: float, timeouts: bool, detect: bool = False
    ) -> Step:
        """The next step of a lane, which the twin has already taken in."""
        config, number = self.config, self.twin.heads[lane]
        after = 2 * number + (2 if rng.random() < follows else 1)
        first, second = (rng.random(2) < ends).tolist()
        if not timeouts:  # Gymnasium's words: a truncated step is done as well, and termination wins
            first, second = first or second, second and not first
        action = ACTIONS[config.action]
        step = Step(
            observation(config.space, lane, 2 * number),
            observation(config.space, lane, after),
            rng.integers(0, 4, 1) if config.action == "discrete" else rng.random(action.shape).astype(np.float32),
            (rng.integers(-8, 9, config.reward_shape) / rng.integers(1, 4)).astype(np.float32),
            float(first),
            float(second),
        )
        if config.fields:
            step.extras = {
                "log_prob": np.float32(rng.standard_normal()),
                "discount": np.float32(rng.choice([0.0, 0.5, 0.9, 1.0])),
                "hidden": rng.standard_normal((2, 3)).astype(np.float32),
                "action_mask": rng.random(4) < 0.5,
                "seen": np.int64(lane * 2**40 + number),
            }
        if config.copy_info:
            step.extras["w"] = np.float64(rng.integers(0, 2))
        self.breaks += self.twin.append(lane, step, detect=detect)
        return step

    def call(self, steps: Sequence[Sequence[Step | None]], timeouts: bool, many: bool) -> tuple[list[Any], dict]:
        """What `add` or `extend` takes for steps[step][lane]; lanes without a step get any."""
        some = next(step for row in steps for step in row if step is not None)
        shape = (len(steps), self.config.lanes)

        def columns(get: Any) -> Any:
            rows = [stack([get(some if step is None else step) for step in row]) for row in steps]
            return stack(rows) if many else rows[0]

        def bare(values: NDArray) -> NDArray:
            return values[..., 0]

        obs, following = columns(lambda s: s.observation), columns(lambda s: s.successor)
        if self.config.space == "discrete":
            obs, following = bare(obs), bare(following)
        action = columns(lambda s: s.action)
        if self.config.action == "discrete":
            action = bare(action)
        done = np.array([[bool(s and s.done) for s in row] for row in steps]).reshape(shape)
        timeout = np.array([[bool(s and s.timeout) for s in row] for row in steps]).reshape(shape)
        infos = [
            [
                {"TimeLimit.truncated": bool(timeout[t, lane])}
                | ({"w": 0.0 if s is None else float(s.extras["w"])} if self.config.copy_info else {})
                for lane, s in enumerate(row)
            ]
            for t, row in enumerate(steps)
        ]
        where = slice(None) if many else 0
        options: dict[str, Any] = {}
        if timeouts:
            options |= {"done": done[where], "infos": infos[where]}
        else:
            options |= {"terminated": (done & ~timeout)[where], "truncated": timeout[where]}
        if self.config.fields:
            options["extras"] = {name: columns(lambda s, n=name: s.extras[n]) for name in FIELDS}
        return [obs, following, action, columns(lambda s: s.reward)], options

    def add(
        self,
        rng: np.random.Generator,
        *,
        ends: float = 0.25,
        follows: float = 0.7,
        mask: NDArray | None = None,
    ) -> None:
        timeouts = self.config.copy_info or bool(rng.random() < 0.5)
        taking_part = np.ones(self.config.lanes, bool) if mask is None else mask
        steps = [
            [
                self.new_step(rng, lane, ends, follows, timeouts) if takes_part else None
                for lane, takes_part in enumerate(taking_part)
            ]
        ]
        if not taking_part.any():
            return
        arguments, options = self.call(steps, timeouts, many=False)
        self.buffer.add(*arguments, **options, **({} if mask is None else {"mask": mask}))

    def extend(
        self, rng: np.random.Generator, count: int, *, ends: float = 0.25, follows: float = 0.7, detect: bool = False
    ) -> None:
        if count == 0:
            return
        before = self.breaks
        timeouts = self.config.copy_info or bool(rng.random() < 0.5)
        steps = [
            [self.new_step(rng, lane, ends, follows, timeouts, detect) for lane in range(self.config.lanes)]
            for _ in range(count)
        ]
        arguments, options = self.call(steps, timeouts, many=True)
        if detect:
            assert self.buffer.extend(*arguments, **options, breaks="detect") == self.breaks - before
        else:
            self.buffer.extend(*arguments, **options)

    # Other operations ----------------------------------------------------------------------------------------------

    def interrupt(self, lanes: Sequence[int]) -> None:
        self.buffer.interrupt(lanes)
        for lane in lanes:
            self.twin.interrupt(lane)

    def reset(self) -> None:
        self.buffer.reset()
        self.twin.reset()

    def copy(self, way: str) -> None:
        self.buffer = copy.deepcopy(self.buffer) if way == "deepcopy" else pickle.loads(pickle.dumps(self.buffer))

    def write_flags(self, rng: np.random.Generator, name: str, way: str) -> None:
        """New values for a flag of all held steps: by whole assignment, in place with `rebuild`, or by handle."""
        config, held = self.config, self.twin.held()
        values = (rng.random(len(held)) < 0.25).astype(np.float32)
        if way == "set":
            self.buffer.set(self.twin.handles(), **{name: values})
        else:
            array = np.array(getattr(self.buffer, name + "s"))
            for step, value in zip(held, values, strict=True):
                array[step.number % config.rows, step.lane] = value
            if way == "assign":
                setattr(self.buffer, name + "s", array)
            else:
                getattr(self.buffer, name + "s")[...] = array
                self.buffer.rebuild()
        for step, value in zip(held, values, strict=True):
            setattr(step, name, float(value))
        self.twin.flags_were_written()

    def happen(self, seed: int) -> str:
        """One random thing; returns what it was."""
        rng = np.random.default_rng(seed)
        kinds = {
            "add": 6,
            "add some": 3,
            "extend": 3,
            "interrupt": 1,
            "flags": 1,
            "copy": 1,
            "reset": 0.2,
        }
        weights = np.array(list(kinds.values()))
        kind = str(rng.choice(list(kinds), p=weights / weights.sum()))
        ends, follows = float(rng.choice([0.0, 0.1, 0.3, 0.8])), float(rng.choice([0.0, 0.7, 1.0]))
        if kind == "add":
            self.add(rng, ends=ends, follows=follows)
        elif kind == "add some":
            self.add(rng, ends=ends, follows=follows, mask=rng.random(self.config.lanes) < 0.5)
        elif kind == "extend":
            count, detect = int(rng.integers(0, 2 * self.config.rows + 3)), bool(rng.random() < 0.5)
            self.extend(rng, count, ends=ends, follows=follows, detect=detect)
        elif kind == "interrupt":
            self.interrupt(np.flatnonzero(rng.random(self.config.lanes) < 0.5).tolist())
        elif kind == "flags":
            self.write_flags(rng, str(rng.choice(["done", "timeout"])), str(rng.choice(["assign", "rebuild", "set"])))
        elif kind == "copy":
            self.copy(str(rng.choice(["deepcopy", "pickle"])))
        else:
            self.reset()
        return kind
