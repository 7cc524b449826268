"""What hypothesis chooses from: lives of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.views.worlds import ACTIONS, SAMPLERS, Config

SEEDS = st.integers(0, 2**32 - 1)
LIVES = st.lists(SEEDS, min_size=1, max_size=8)
STRATEGIES = ("future", "final", "episode", "random")
# Without replacement a batch can be short; tests/samplers looks at that by itself.
WITH_REPLACEMENT = tuple(name for name in SAMPLERS if name != "epochs")


def plain(samplers: Sequence[str] = WITH_REPLACEMENT, **fixed: Any) -> st.SearchStrategy[Config]:
    """Lives without hindsight."""
    options: dict[str, Any] = {
        "space": st.sampled_from(["box", "discrete", "dict", "goal"]),
        "action": st.sampled_from(sorted(ACTIONS)),
        "rows": st.integers(1, 9),
        "lanes": st.integers(1, 4),
        "n_steps": st.integers(1, 5),
        "gamma": st.sampled_from([0.99, 0.5, 1.0, 0.0]),
        "sampler": st.sampled_from(list(samplers)),
        "fields": st.booleans(),
        "reward_shape": st.sampled_from([(), (), (3,)]),
        "seed": st.sampled_from([None, 0, 1]),
    }
    return st.builds(Config, **(options | {name: st.just(value) for name, value in fixed.items()}))


def hindsight(samplers: Sequence[str] = WITH_REPLACEMENT, **fixed: Any) -> st.SearchStrategy[Config]:
    """Lives with hindsight."""
    options: dict[str, Any] = {
        "action": st.sampled_from(sorted(ACTIONS)),
        "rows": st.integers(1, 9),
        "lanes": st.integers(1, 4),
        "n_steps": st.integers(1, 4),
        "gamma": st.sampled_from([0.99, 0.5, 1.0]),
        "sampler": st.sampled_from(list(samplers)),
        "strategy": st.sampled_from(STRATEGIES),
        "n_sampled_goal": st.integers(1, 5),
        "ends_at_goals": st.booleans(),
        "running": st.booleans(),
        "copy_info": st.booleans(),
        "fields": st.booleans(),
        "seed": st.sampled_from([None, 0, 1]),
    }
    chosen = options | {name: st.just(value) for name, value in fixed.items()}
    return st.builds(Config, space=st.just("goal"), **chosen)


WINDOWS = st.fixed_dictionaries(
    {
        "length": st.integers(1, 7),
        "stride": st.integers(1, 3),
        "pad": st.sampled_from([None, "none"]),
        "cross_episodes": st.booleans(),
        "align": st.sampled_from(["start", "end"]),
    }
)
