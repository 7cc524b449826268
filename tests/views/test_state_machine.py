"""One buffer with every view at once lives a random life beside its twin; after each step all views are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.views.configs import SEEDS, WINDOWS, hindsight, plain
from tests.views.life import Life
from tests.views.worlds import WEIGHS, Config

ENDS, FOLLOWS = st.sampled_from([0.0, 0.1, 0.3, 0.8]), st.sampled_from([0.0, 0.7, 1.0])


class EveryView(RuleBasedStateMachine):
    """What can happen to a buffer, and all that can be drawn from it."""

    @initialize(config=st.one_of(plain(), hindsight()))
    def begin(self, config: Config) -> None:
        self.life = Life(config)

    @rule(seed=SEEDS, ends=ENDS, follows=FOLLOWS)
    def add(self, seed: int, ends: float, follows: float) -> None:
        self.life.add(np.random.default_rng(seed), ends=ends, follows=follows)

    @rule(seed=SEEDS, ends=ENDS, follows=FOLLOWS, data=st.data())
    def add_some_lanes(self, seed: int, ends: float, follows: float, data: st.DataObject) -> None:
        lanes = self.life.config.lanes
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=lanes, max_size=lanes)))
        self.life.add(np.random.default_rng(seed), ends=ends, follows=follows, mask=mask)

    @rule(seed=SEEDS, ends=ENDS, follows=FOLLOWS, data=st.data())
    def extend(self, seed: int, ends: float, follows: float, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, 2 * self.life.config.rows + 2), label="steps")
        detect = data.draw(st.booleans(), label="detect breaks")
        self.life.extend(np.random.default_rng(seed), count, ends=ends, follows=follows, detect=detect)

    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        self.life.interrupt(sorted(data.draw(st.sets(st.integers(0, self.life.config.lanes - 1)))))

    @rule(seed=SEEDS, name=st.sampled_from(["done", "timeout"]), way=st.sampled_from(["assign", "rebuild", "set"]))
    def write_flags(self, seed: int, name: str, way: str) -> None:
        self.life.write_flags(np.random.default_rng(seed), name, way)

    @rule(way=st.sampled_from(["pickle", "deepcopy"]))
    def go_on_with_a_copy(self, way: str) -> None:
        self.life.copy(way)

    @rule()
    def reset(self) -> None:
        self.life.reset()

    @rule(seed=SEEDS)
    def update_priorities(self, seed: int) -> None:
        """Also of steps that are not held any more, or not yet."""
        life, rng = self.life, np.random.default_rng(seed)
        if life.config.sampler not in WEIGHS or not max(life.twin.heads):
            return
        handles = rng.integers(0, (max(life.twin.heads) + 2) * life.config.lanes, 5)
        stale = life.buffer.update_priorities(handles, rng.integers(0, 3, 5).astype(float))
        assert stale == sum(handle not in life.twin.handles() for handle in handles.tolist())

    @rule(window=WINDOWS, normalised=st.booleans(), data=st.data())
    def draw_sequences(self, window: dict[str, Any], normalised: bool, data: st.DataObject) -> None:
        if self.life.config.strategy is not None:
            window = window | {"cross_episodes": False}
        burn_in = data.draw(st.integers(0, window["length"] - 1), label="burn_in")
        self.life.check_sequences(3, burn_in=burn_in, normalised=normalised, **window)

    @rule()
    def draw_normalised(self) -> None:
        self.life.check_sample(4, normalised=True)

    @rule()
    def draw_episodes(self) -> None:
        self.life.check_episodes()

    @invariant()
    def transitions_are_right(self) -> None:
        if hasattr(self, "life"):
            self.life.check_sample(4)

    @invariant()
    def handles_are_those_of_the_twin(self) -> None:
        if hasattr(self, "life"):
            assert self.life.buffer.handles().tolist() == self.life.twin.handles()


TestEveryView = EveryView.TestCase
TestEveryView.settings = settings()
