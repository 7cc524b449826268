"""What every built wheel must do: import, store, draw (cibuildwheel runs this file alone)."""

import gymnasium as gym
import numpy as np
import torch

import relive


def test_a_step_comes_back_from_every_buffer() -> None:
    box, discrete = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4)
    replay = relive.ReplayBuffer(8, box, discrete, device="cpu", seed=0)
    replay.add(np.full(3, 0.25), np.full(3, 0.5), 2, 1.5, terminated=False, truncated=True)
    batch = replay.sample(2)
    assert torch.equal(batch.observations, torch.full((2, 3), 0.25))
    assert torch.equal(batch.next_observations, torch.full((2, 3), 0.5))
    assert batch.actions.tolist() == [[2], [2]]
    assert batch.rewards.tolist() == [[1.5], [1.5]]
    assert batch.dones.tolist() == [[0.0], [0.0]]

    rollout = relive.RolloutBuffer(1, box, discrete, device="cpu", gamma=0.5, seed=0)
    rollout.add(np.zeros(3), 3, 1.0, True, torch.tensor([5.0]), torch.tensor([-0.5]))
    rollout.compute_returns_and_advantage(torch.tensor([7.0]), np.array([False]))
    (minibatch,) = rollout.get()
    assert minibatch.advantages.tolist() == [-0.5]


def test_the_version_is_that_of_the_distribution() -> None:
    assert relive.__version__.count(".") == 2
