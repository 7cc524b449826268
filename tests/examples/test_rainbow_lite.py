"""`examples/rainbow_lite.py`, for a few hundred steps: n-step, priorities and weights, from end to end."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from relive.examples import rainbow_lite
from relive.examples.dqn import Result

GAMMA = 0.9


@cache
def short_run() -> Result:
    return rainbow_lite.train(
        rainbow_lite.Config(
            steps=600,
            seed=3,
            learning_starts=200,
            batch_size=32,
            hidden=16,
            gamma=GAMMA,
            eval_every=300,
            eval_episodes=2,
        )
    )


def test_a_run_evaluates_as_often_as_it_says_and_draws_twice_a_step() -> None:
    result = short_run()
    assert [env_steps for env_steps, _ in result.curve] == [300, 600]
    assert result.draws == 2 * (600 - 200 + 4) // 4
    assert all(bool(weights.isfinite().all()) for weights in result.network.parameters())


def test_priorities_went_back_to_the_steps_that_were_drawn() -> None:
    buffer = short_run().buffer
    masses = buffer.priorities(buffer.handles())
    assert np.isfinite(masses).all() and (masses > 0).all()
    assert len(np.unique(masses)) > 300, "most of 600 steps were drawn, each with an error of its own"
    assert buffer.sampler.dropped == 0, "nothing was overwritten"


def test_beta_has_grown_to_one_at_the_end() -> None:
    assert short_run().buffer.sampler.beta_now() == pytest.approx(1.0)


def test_windows_are_of_three_steps_and_shorter_before_an_end() -> None:
    batch = short_run().buffer.sample(256)
    assert batch.discounts is not None
    lengths = np.round(np.log(batch.discounts.numpy()) / np.log(GAMMA), 4)
    assert set(np.unique(lengths)) == {1.0, 2.0, 3.0}
    assert np.allclose(batch.rewards.numpy(), (1 - GAMMA**lengths) / (1 - GAMMA)), "CartPole pays 1 a step"


def test_the_same_seed_gives_the_same_run() -> None:
    first = short_run()
    second = short_run.__wrapped__()
    assert first.curve == second.curve
    assert all(a.equal(b) for a, b in zip(first.network.parameters(), second.network.parameters(), strict=True))


def test_training_stops_at_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rainbow_lite.SOLVED_AT, "CartPole-v1", 5.0)
    result = rainbow_lite.train(rainbow_lite.Config(steps=600, eval_every=200, eval_episodes=2))
    assert result.env_steps == 200


def test_the_command_line_prints_the_curve_and_a_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    rainbow_lite.main(
        ["--env-id", "Acrobot-v1", "--steps", "400", "--seed", "1", "--eval-every", "200", "--eval-episodes", "2"]
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["200", "400"]
    assert lines[2].startswith("rainbow_lite, Acrobot-v1, seed 1: mean return -")
    assert "after 400 steps" in lines[2]
