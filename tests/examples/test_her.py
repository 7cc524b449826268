"""`examples/her.py`, for a few hundred steps: goals in Dict observations, relabelled rewards and ends."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from relive.examples import her

SHORT = her.Config(
    steps=800, seed=3, n_bits=6, learning_starts=400, batch_size=40, hidden=16, eval_every=400, eval_episodes=10
)


@cache
def short_run(with_hindsight: bool) -> her.Result:
    return her.train(SHORT, with_hindsight)


def test_an_episode_ends_at_its_goal_or_after_as_many_steps_as_bits() -> None:
    env = her.BitFlip(6)
    obs, _ = env.reset(seed=0)
    wrong = np.flatnonzero(obs["observation"] != obs["desired_goal"])
    for count, bit in enumerate(wrong, start=1):
        obs, reward, terminated, truncated, _ = env.step(bit)
        assert terminated == (count == len(wrong)) and reward == (0.0 if terminated else -1.0)
        assert not truncated
    env.reset()
    ends = [env.step(np.int64(0))[3] for _ in range(6)]
    assert ends == [False] * 5 + [True]


def test_rewards_of_a_batch_are_those_of_the_environment() -> None:
    buffer = short_run(False).buffer
    batch = buffer.transitions(buffer.handles())
    achieved, desired = (batch.next_observations[name].numpy() for name in ("achieved_goal", "desired_goal"))
    assert np.array_equal(her.reward(achieved, desired), batch.rewards[:, 0].numpy())
    assert np.array_equal(her.is_reached(achieved, desired), batch.dones[:, 0].numpy())


def test_four_of_five_rows_get_a_goal_of_their_own_episode() -> None:
    batch = short_run(True).buffer.sample(100)
    assert batch.relabelled.sum() == 80
    achieved, desired = (batch.next_observations[name].numpy() for name in ("achieved_goal", "desired_goal"))
    reached = her.is_reached(achieved, desired)
    assert np.array_equal(batch.rewards[:, 0].numpy(), reached - 1.0)
    assert np.array_equal(batch.dones[:, 0].numpy(), reached)
    assert torch.equal(batch.observations["desired_goal"], batch.next_observations["desired_goal"])
    assert reached[batch.relabelled].any(), "hindsight makes successes"


def test_what_is_stored_keeps_its_goals() -> None:
    buffer = short_run(True).buffer
    batch = buffer.transitions(buffer.handles())
    reached = her.is_reached(*(batch.next_observations[name].numpy() for name in ("achieved_goal", "desired_goal")))
    assert reached.sum() == short_run(True).successes


def test_both_agents_are_the_same_until_they_learn() -> None:
    with_it, without = short_run(True).buffer, short_run(False).buffer
    steps = SHORT.learning_starts // SHORT.n_envs
    assert np.array_equal(with_it.actions[:steps], without.actions[:steps])
    assert not np.array_equal(with_it.actions[steps:100], without.actions[steps:100])


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = short_run(True), her.train(SHORT)
    assert first.curve == second.curve
    assert all(a.equal(b) for a, b in zip(first.network.parameters(), second.network.parameters(), strict=True))
    assert all(bool(weights.isfinite().all()) for weights in first.network.parameters())


def test_the_command_line_prints_both_curves(capsys: pytest.CaptureFixture[str]) -> None:
    her.main(["--steps", "400", "--n-bits", "5", "--eval-every", "200", "--learning-starts", "200", "--hidden", "16"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["steps", "success", "with", "hindsight", "without"]
    assert [line.split()[0] for line in lines[1:3]] == ["200", "400"]
    assert lines[3].startswith("her, 5 bits, seed 0, with hindsight: success rate ")
    assert lines[4].startswith("her, 5 bits, seed 0, without hindsight: success rate ")
