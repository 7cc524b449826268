"""Normalisation through ``env=``, on every view."""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import relive
from tests.cases.chains import ACTION, replay, step
from tests.cases.goals import buffer_of, episode, is_reached


class Normaliser:
    """Clips rewards, so that it matters whether each is normalised or their sum; exact in float32."""

    def normalize_obs(self, obs: Any) -> Any:
        if isinstance(obs, dict):
            return {key: self.normalize_obs(part) for key, part in obs.items()}
        return (obs / np.float64(2) + 1).astype(np.float32)

    def normalize_reward(self, reward: Any) -> Any:
        return np.clip(reward / 4, -1, 1)


@pytest.mark.parametrize(
    ("stored", "raw"), [((6,), (3,)), ((3, 96, 96), (96, 96, 3)), ((3,), (1,)), ((2, 3), (3,))], ids=str
)
@pytest.mark.parametrize("which", ["obs", "next_obs"])
def test_I02_observations_of_another_shape_are_refused(stored: Any, raw: Any, which: str) -> None:
    """DLR-RM/stable-baselines3#693, #819. A wrapper stacks or transposes, and what comes in is what it was before."""
    buffer = relive.ReplayBuffer(4, spaces.Box(0, 255, stored, np.uint8), ACTION, device="cpu")
    right, wrong = np.zeros((1, *stored), np.uint8), np.zeros((1, *raw), np.uint8)
    obs, following = (wrong, right) if which == "obs" else (right, wrong)
    with pytest.raises(relive.errors.ShapeError) as raised:
        buffer.add(obs, following, [0], [0.0], [False])
    for shape in (stored, raw):
        assert ", ".join(map(str, shape)) in str(raised.value)
    assert len(buffer) == 0


def test_a_normaliser_of_another_shape_is_refused() -> None:
    class Stacks(Normaliser):
        def normalize_obs(self, obs: Any) -> Any:
            return np.concatenate([obs, obs], axis=-1)

    buffer = replay(4, n_steps=2, seed=0)
    step(buffer, 0, 1)
    try:
        batch = buffer.sample(3, env=Stacks())
    except ValueError:
        return
    assert batch.observations.shape == batch.next_observations.shape == (3, 2)  # as the seed: what env gives is drawn


def test_rewards_are_normalised_one_by_one_before_they_are_summed() -> None:
    """As Stable-Baselines3 does: 1 + 0.5 + 0.25 and not the clipped whole."""
    buffer = replay(8, n_steps=3, gamma=0.5, seed=0)
    for t, reward in enumerate([8, 4, 100, 2]):
        step(buffer, t, t + 1, reward=reward, terminated=t == 3)
    batch = buffer.sample(100, env=Normaliser())
    rows = dict(zip(batch.observations.flatten().tolist(), batch.rewards.flatten().tolist(), strict=True))
    # Observation t is drawn as t / 2 + 1.
    assert rows == {1.0: 1 + 0.5 + 0.25, 1.5: 1 + 0.5 + 0.125, 2.0: 1 + 0.25, 2.5: 0.5}
    assert batch.rewards.numpy().dtype == np.float32
    assert buffer.rewards[:4].flatten().tolist() == [8, 4, 100, 2]


def test_the_same_in_sequences_with_nothing_added_to_the_padding() -> None:
    buffer = replay(8, n_steps=2, gamma=0.5, seed=0)
    for t, reward in enumerate([8, 4, 100]):
        step(buffer, t, t + 1, reward=reward, terminated=t == 2)
    batch = buffer.sample_sequences(50, 4, stride=3, env=Normaliser())
    assert batch.rewards[0, :, 0].tolist() == [1.5, 1.5, 1, 0]
    assert batch.observations[0, :, 0].tolist() == [1, 1.5, 2, 0]
    assert batch.next_observations[0, :, 0].tolist() == [2, 2.5, 2.5, 0]


def test_hindsight_computes_on_what_is_stored_and_normalises_afterwards() -> None:
    seen: list[float] = []

    def reward(achieved: Any, desired: Any, info: Any) -> Any:
        seen.extend(achieved.flatten().tolist())
        return is_reached(achieved, desired, info) * 2

    buffer = buffer_of(8, reward, strategy="final")
    episode(buffer, 0, [1, 2], goal=6)
    batch = buffer.sample(100, env=Normaliser())
    assert set(seen) == {1, 2}
    goals = batch.observations["desired_goal"].flatten().numpy()
    assert goals.tolist() == [2 if new else 4 for new in batch.relabelled]  # goals 2 and 6, normalised
    last = batch.next_observations["achieved_goal"].flatten().numpy() == 2
    assert batch.rewards.flatten().tolist() == ((last & batch.relabelled) * 0.5).tolist()


def test_extras_and_priorities_are_left_as_they_are() -> None:
    buffer = replay(8, n_steps=2, fields={"cost": ((), np.float32)}, sampler=relive.Prioritized(), seed=0)
    for t in range(3):
        buffer.add([[t]], [[t + 1]], [0], [t], [False], extras={"cost": [100.0]})
    batch = buffer.sample(10, env=Normaliser())
    assert set(batch.extras["cost"].tolist()) == {100}
    assert set(batch.weights.flatten().tolist()) == {1}
