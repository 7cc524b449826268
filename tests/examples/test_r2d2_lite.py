"""`examples/r2d2_lite.py`, for a few hundred steps: stored states, burn-in and priorities of sequences."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from relive.examples import r2d2_lite
from torch import nn

SHORT = r2d2_lite.Config(
    steps=800,
    seed=3,
    delay=6,
    batch_size=16,
    burn_in=3,
    learn=3,
    learning_starts=400,
    hidden=8,
    eval_every=400,
    eval_episodes=4,
)


@cache
def short_run() -> r2d2_lite.Result:
    return r2d2_lite.train(SHORT)


@cache
def run_without_learning() -> r2d2_lite.Result:
    return r2d2_lite.train(replace(SHORT, learning_starts=SHORT.steps + 1))


def test_the_cue_is_shown_once_and_asked_for_at_the_end() -> None:
    env = r2d2_lite.Recall(delay=6)
    obs, _ = env.reset(seed=0)
    cue, seen, rewards, terminated = int(obs[: env.CUES].argmax()), [obs], [], False
    while not terminated:
        obs, reward, terminated, _, _ = env.step(np.int64(cue))
        seen.append(obs)
        rewards.append(reward)
    assert [step[: env.CUES].sum() for step in seen] == [1.0] + [0.0] * (len(seen) - 1)
    assert [step[-2] for step in seen[:-1]] == rewards == [0.0] * 6 + [1.0] * env.QUESTIONS


def test_an_episode_begins_with_a_state_of_zeros() -> None:
    batch = run_without_learning().buffer.sample_sequences(200, 4, states=("state",))
    is_zero = (batch.states["state"] == 0).all(dim=2).all(dim=1)
    assert torch.equal(is_zero, batch.is_first[:, 0])
    assert is_zero.any() and not is_zero.all()


def test_stored_states_are_what_the_network_has_seen_so_far() -> None:
    result = run_without_learning()
    batch = result.buffer.sample_sequences(50, 4, states=("state",), pad="none")
    states = result.buffer.transitions(batch.handles + 4 * SHORT.n_envs).extras["state"]
    begins = result.buffer.sample_sequences(1, 4).is_first
    with torch.no_grad():
        _, after = result.network(batch.observations, batch.states["state"])
    going_on = ~(states == 0).all(dim=2).all(dim=1)
    assert going_on.any() and begins.dtype == torch.bool
    assert torch.allclose(after[going_on], states[going_on], atol=1e-6)


def test_errors_are_those_of_a_walk_step_by_step() -> None:
    result = short_run()
    online, target = result.network, r2d2_lite.RecurrentQ(6, 4, SHORT.hidden)
    batch = result.buffer.sample_sequences(32, 6, burn_in=3, states=("state",))
    state, learned = batch.states["state"], batch.mask & ~batch.burn_in
    with torch.no_grad():
        errors = r2d2_lite.td_errors(online, target, batch, state, burn_in=3, gamma=0.5)
    assert not errors[:, :3].any()
    for row, time in learned.nonzero().tolist():
        expected = error_of_one_step(online, target, batch, row, time)
        assert errors[row, time].item() == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def error_of_one_step(online: nn.Module, target: nn.Module, batch: object, row: int, time: int) -> float:
    online_state = target_state = batch.states["state"][row : row + 1]
    for step in range(time + 1):
        obs = batch.observations[row, step][None, None]
        values, online_state = online(obs, online_state)
        _, target_state = target(obs, target_state)
    next_obs = batch.next_observations[row, time][None, None]
    action = online(next_obs, online_state)[0].argmax()
    bootstrap = target(next_obs, target_state)[0].flatten()[action] * (1 - batch.dones[row, time, 0])
    return float(batch.rewards[row, time, 0] + 0.5 * bootstrap - values.flatten()[batch.actions[row, time, 0]])


def test_losses_are_finite_and_priorities_went_back() -> None:
    result = short_run()
    assert len(result.losses) == (800 - 400) // SHORT.n_envs + 1
    assert np.isfinite(result.losses).all() and min(result.losses) >= 0
    masses = result.buffer.priorities(result.buffer.handles())
    assert len(np.unique(masses)) > 100


def test_windows_of_nothing_but_burn_in_are_not_drawn_again() -> None:
    buffer = short_run().buffer
    batch = buffer.sample_sequences(400, 6, burn_in=3, priorities=False)
    has_lesson = (batch.mask & ~batch.burn_in).any(dim=1).numpy()
    is_left_out = buffer.priorities(batch.handles) < 1e-3
    assert is_left_out.any()
    assert not (is_left_out & has_lesson).any()


def test_the_three_ways_are_the_same_until_they_learn_and_then_differ() -> None:
    zero_state = r2d2_lite.train(SHORT, use_stored_state=False)
    no_burn_in = r2d2_lite.train(replace(SHORT, burn_in=0))
    for other in (zero_state, no_burn_in):
        steps = SHORT.learning_starts // SHORT.n_envs
        assert np.array_equal(other.buffer.actions[:steps], short_run().buffer.actions[:steps])
        assert other.losses != short_run().losses


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = short_run(), r2d2_lite.train(SHORT)
    assert first.curve == second.curve
    assert first.losses == second.losses


def test_the_command_line_prints_three_curves(capsys: pytest.CaptureFixture[str]) -> None:
    short = {"steps": 400, "delay": 4, "learning-starts": 320, "hidden": 8, "eval-every": 200, "eval-episodes": 4}
    r2d2_lite.main([word for name, value in short.items() for word in (f"--{name}", str(value))])
    lines = capsys.readouterr().out.splitlines()
    assert [len(line.split()) for line in lines[1:3]] == [4, 4]
    for line, name in zip(lines[3:], ("stored state and burn-in", "stored state alone", "burn-in alone"), strict=True):
        assert line.startswith(f"r2d2_lite, seed 0, {name}: mean return ")
