"""How often each step, start and goal is drawn: chi-square tests with fixed seeds."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest

import relive
from tests.reference.priorities import probabilities, rank_probabilities
from tests.samplers.frequencies import are_equal, fits
from tests.views.configs import STRATEGIES
from tests.views.life import Life
from tests.views.worlds import Config

DRAWS = 30_000


def lived(config: Config, seed: int, masked: bool = False, **options: Any) -> Life:
    """A wrapped ring with ends of every kind, lanes in lockstep or not."""
    life, rng = Life(config, **options), np.random.default_rng(seed)
    for _ in range(2 * config.rows):
        life.add(rng, ends=0.15, mask=rng.random(config.lanes) < 0.6 if masked else None)
    return life


def drawn(life: Life, draws: int = DRAWS) -> list[int]:
    batches = [life.buffer.sample(1000) for _ in range(draws // 1000)]
    return list(chain.from_iterable(life.handles_of(batch, batch.observations) for batch in batches))


@pytest.mark.parametrize("masked", [False, True], ids=["lockstep", "lanes differ"])
@pytest.mark.parametrize("sampler", ["none", "uniform"])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_uniform_over_all_steps_held(n_steps: int, sampler: str, masked: bool) -> None:
    life = lived(Config(rows=9, lanes=4, n_steps=n_steps, sampler=sampler), 1, masked)
    assert are_equal(drawn(life), life.twin.handles())


@pytest.mark.parametrize("masked", [False, True], ids=["lockstep", "lanes differ"])
@pytest.mark.parametrize("running", [False, True])
def test_hindsight_is_uniform_over_all_eligible_steps(running: bool, masked: bool) -> None:
    life = lived(Config("goal", rows=9, lanes=4, strategy="future", running=running, sampler="uniform"), 2, masked)
    eligible = life.twin.handles(life.twin.eligible(life.config.goals))
    assert len(eligible) < len(life.twin.held()) or running
    assert are_equal(drawn(life), eligible)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sampler", ["none", "prioritized"])
def test_goals_are_uniform_over_what_the_strategy_allows(strategy: str, sampler: str) -> None:
    life = lived(Config("goal", rows=7, lanes=3, strategy=strategy, n_steps=2, sampler=sampler), 3)
    twin, goals, pairs = life.twin, life.config.goals, []
    by_bytes = {s.successor["achieved_goal"].tobytes(): twin.handle(s) for s in twin.held()}
    for _ in range(40):
        batch = life.buffer.sample(1000)
        handles = life.handles_of(batch, batch.observations)
        desired = batch.observations["desired_goal"].numpy()
        pairs += [(handles[i], by_bytes[desired[i].tobytes()]) for i in np.flatnonzero(batch.relabelled)]
    expected = {
        (twin.handle(step), twin.handle(goal)): 1 / len(twin.goals_of(step, goals))
        for step in twin.eligible(goals)
        for goal in twin.goals_of(step, goals)
    }
    assert fits(pairs, expected)


def test_which_rows_of_a_stratified_batch_are_relabelled_is_random() -> None:
    """They come in the order of the steps; of independent draws the first rows are as good as any."""
    life = lived(Config("goal", rows=9, sampler="prioritized", strategy="future", n_sampled_goal=1), 4)
    flags = np.array([life.buffer.sample(8).relabelled for _ in range(4000)])
    assert are_equal(np.nonzero(flags)[1].tolist(), range(8))
    patterns = {tuple(row) for row in flags.tolist()}
    assert len(patterns) == 70  # all ways to choose four of eight


def test_the_first_rows_of_a_uniform_batch_are_relabelled() -> None:
    life = lived(Config("goal", rows=9, strategy="future", n_sampled_goal=1), 4)
    assert life.buffer.sample(8).relabelled.tolist() == [True] * 4 + [False] * 4


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"pad": "none"}, {"cross_episodes": True, "pad": "none"}])
@pytest.mark.parametrize("masked", [False, True], ids=["lockstep", "lanes differ"])
def test_sequences_are_uniform_over_legal_starts(options: dict[str, Any], masked: bool) -> None:
    life = lived(Config(rows=12, lanes=3), 5, masked)
    arguments = {"stride": 1, "pad": "end", "cross_episodes": False} | options
    legal = life.twin.handles(life.twin.legal_starts(3, **arguments))
    batches = [life.buffer.sample_sequences(1000, 3, **options).handles.tolist() for _ in range(DRAWS // 1000)]
    assert are_equal(chain.from_iterable(batches), legal)


@pytest.mark.parametrize("pad", ["end", "none"])
def test_over_episodes_each_episode_has_the_same_share(pad: str) -> None:
    life = lived(Config(rows=12, lanes=3), 6, sampler=relive.Uniform(over="episodes"))
    legal = life.twin.legal_starts(3, 1, pad, False)
    by_episode: dict[tuple[int, int], list[int]] = {}
    for step in legal:
        by_episode.setdefault((step.lane, step.since), []).append(life.twin.handle(step))
    expected = {handle: 1 / len(starts) for starts in by_episode.values() for handle in starts}
    assert len({len(starts) for starts in by_episode.values()}) > 2  # else it would not differ from over transitions
    batches = [life.buffer.sample_sequences(1000, 3, pad=pad).handles.tolist() for _ in range(DRAWS // 1000)]
    assert fits(chain.from_iterable(batches), expected)


def test_episodes_are_drawn_uniformly() -> None:
    life = lived(Config(rows=12, lanes=3), 7)
    whole = [tuple(life.twin.handles(episode)) for episode in life.twin.episodes(whole=True)]
    assert are_equal([tuple(e.handles.tolist()) for _ in range(30) for e in life.buffer.sample_episodes(200)], whole)


@pytest.mark.parametrize("masked", [False, True], ids=["lockstep", "lanes differ"])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_prioritised_draws_are_proportional_to_mass(batch: int, masked: bool) -> None:
    life = lived(Config(rows=7, lanes=3, n_steps=2, sampler="prioritized"), 8, masked)
    handles = life.twin.handles()
    priorities = np.random.default_rng(0).integers(0, 9, len(handles)) / 2
    life.buffer.update_priorities(handles, priorities)
    masses = (priorities + 1e-6) ** 0.6
    keep = masses > 0.1  # those of priority 0 are too rare for the test
    draws = [life.buffer.sample(batch).handles.tolist() for _ in range(15_000 // batch)]
    rare = [h for h, kept in zip(handles, keep, strict=True) if not kept]
    seen = [h for h in chain.from_iterable(draws) if h not in rare]
    assert fits(seen, {h: m for h, m, kept in zip(handles, masses, keep, strict=True) if kept})


def test_prioritised_hindsight_is_proportional_among_eligible_steps() -> None:
    life = lived(Config("goal", rows=9, lanes=2, strategy="future", sampler="prioritized"), 9)
    handles = life.twin.handles()
    priorities = np.random.default_rng(0).integers(1, 9, len(handles)).astype(float)
    life.buffer.update_priorities(handles, priorities)
    eligible = life.twin.handles(life.twin.eligible(life.config.goals))
    assert 0 < len(eligible) < len(handles)
    masses = {h: (p + 1e-6) ** 0.6 for h, p in zip(handles, priorities, strict=True) if h in eligible}
    assert fits(drawn(life), masses)


def test_prioritised_sequences_start_in_proportion_to_the_mass_of_their_first_step() -> None:
    life = lived(Config(rows=9, lanes=2, sampler="prioritized"), 10)
    handles = life.twin.handles()
    priorities = np.random.default_rng(0).integers(1, 9, len(handles)).astype(float)
    life.buffer.update_priorities(handles, priorities)
    mass = dict(zip(handles, probabilities((priorities + 1e-6) ** 0.6), strict=True))
    legal = life.twin.handles(life.twin.legal_starts(3, 1, "none", False))
    starts = [life.buffer.sample_sequences(500, 3, pad="none").handles.tolist() for _ in range(60)]
    assert fits(chain.from_iterable(starts), {h: mass[h] for h in legal})
    starts = [life.buffer.sample_sequences(500, 3, pad="none", priorities=False).handles.tolist() for _ in range(60)]
    assert are_equal(chain.from_iterable(starts), legal)


@pytest.mark.parametrize("batch", [1, 50])
def test_rank_based_draws_go_by_rank(batch: int) -> None:
    life = lived(Config(rows=8, lanes=1, sampler="rank"), 11)
    handles = life.twin.handles()
    priorities = [3.0, 1.0, 1.0, 7.0, 0.0, 2.5, 1.0, 4.0]  # with ties: the newest first
    life.buffer.update_priorities(handles, priorities)
    p = rank_probabilities(priorities, ages=list(range(8))[::-1], alpha=0.7)
    draws = chain.from_iterable(life.buffer.sample(batch).handles.tolist() for _ in range(20_000 // batch))
    assert fits(draws, dict(zip(handles, p, strict=True)))


def test_a_new_step_is_of_the_first_rank() -> None:
    life = lived(Config(rows=6, lanes=1, sampler="rank"), 12)
    handles = life.twin.handles()
    life.buffer.update_priorities(handles, [5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    life.add(np.random.default_rng(0))
    p = rank_probabilities([4.0, 3.0, 2.0, 1.0, 0.0, 4.0], ages=[5, 4, 3, 2, 1, 0], alpha=0.7)
    assert fits(drawn(life), dict(zip(life.twin.handles(), p, strict=True)))
