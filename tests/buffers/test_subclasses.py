"""Subclasses of the kinds that are found in public code for Stable-Baselines3 keep working."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import relive

BOX, DISCRETE = spaces.Box(-10, 10, (2,), np.float32), spaces.Discrete(3)


def add(buffer: Any, t: int, n_envs: int = 1) -> None:
    obs = np.full((n_envs, 2), t, np.float32)
    buffer.add(obs, obs + 1, np.full(n_envs, t % 3), np.full(n_envs, t), np.zeros(n_envs, bool), [{}] * n_envs)


class Newest(relive.ReplayBuffer):
    """Always draws the newest row."""

    def _get_samples(self, batch_inds: NDArray, env: Any = None) -> Any:
        return super()._get_samples(np.full_like(batch_inds, self.pos - 1), env)


def test_sample_goes_through_an_overridden_get_samples() -> None:
    buffer = Newest(4, BOX, DISCRETE, device="cpu")
    for t in range(6):
        add(buffer, t)
    assert buffer.sample(5).rewards.unique().tolist() == [5]


def test_negative_rows_count_from_the_end() -> None:
    class Last(relive.ReplayBuffer):
        def _get_samples(self, batch_inds: NDArray, env: Any = None) -> Any:
            return super()._get_samples(np.array([-1, -2]), env)

    buffer = Last(4, BOX, DISCRETE, device="cpu")
    for t in range(4):
        add(buffer, t)
    assert buffer.sample(1).rewards.flatten().tolist() == [3, 2]


def test_to_torch_can_be_overridden() -> None:
    class Half(relive.ReplayBuffer):
        def to_torch(self, array: NDArray, copy: bool = True) -> torch.Tensor:
            return super().to_torch(array, copy).half()

    buffer = Half(4, BOX, DISCRETE, device="cpu")
    add(buffer, 0)
    assert {part.dtype for part in buffer.sample(2)[:5]} == {torch.float16}


class PlainArrays(relive.ReplayBuffer):
    """Skips the constructor of its parent and brings arrays of its own."""

    def __init__(
        self, buffer_size: int, observation_space: Any, action_space: Any, device: Any = "cpu", n_envs: int = 1
    ):
        super(relive.ReplayBuffer, self).__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.handle_timeout_termination = True
        self.observations = np.zeros((self.buffer_size, n_envs, *self.obs_shape), observation_space.dtype)
        self.next_observations = np.zeros_like(self.observations)
        self.actions = np.zeros((self.buffer_size, n_envs, self.action_dim), action_space.dtype)
        self.rewards = np.zeros((self.buffer_size, n_envs), np.float32)
        self.dones = np.zeros((self.buffer_size, n_envs), np.float32)
        self.timeouts = np.zeros((self.buffer_size, n_envs), np.float32)


def test_a_subclass_with_plain_arrays_adds_and_draws_as_the_seed() -> None:
    from stable_baselines3.common.buffers import ReplayBuffer

    ours, theirs = PlainArrays(12, BOX, DISCRETE, n_envs=2), ReplayBuffer(12, BOX, DISCRETE, "cpu", n_envs=2)
    with pytest.raises(relive.errors.EmptyBufferError):
        ours.sample(1)
    for t in range(8):
        for buffer in (ours, theirs):
            add(buffer, t, 2)
        assert (ours.pos, ours.full, ours.size()) == (theirs.pos, theirs.full, theirs.size())
        batches = []
        for buffer in (ours, theirs):
            np.random.seed(t)
            batches.append(buffer.sample(20))
        for got, expected in zip(*batches, strict=True):
            assert expected is None or torch.equal(got, expected)
    assert type(ours.observations) is np.ndarray
    assert ours.num_transitions == len(ours) == 12
    assert "PlainArrays" in repr(ours)
    for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert np.array_equal(twin.observations, ours.observations)
        assert twin.pos == ours.pos
    ours.reset()
    assert (ours.pos, ours.full) == (0, False)
    del ours.__dict__["timeouts"]
    with pytest.raises(AttributeError, match="no attribute 'timeouts'"):
        _ = ours.timeouts


class Wrapper(relive.ReplayBuffer):
    """As imitation's: stands before another buffer, whose position is its own."""

    def __init__(self, inner: relive.ReplayBuffer) -> None:
        self.inner = inner
        for attribute in ("buffer_size", "observation_space", "action_space", "n_envs"):
            setattr(self, attribute, getattr(inner, attribute))

    @property
    def pos(self) -> int:  # type: ignore[override]
        return self.inner.pos

    @pos.setter
    def pos(self, pos: int) -> None:
        self.inner.pos = pos

    @property
    def full(self) -> bool:  # type: ignore[override]
        return self.inner.full

    @full.setter
    def full(self, full: bool) -> None:
        self.inner.full = full

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        samples = self.inner.sample(*args, **kwargs)
        return samples._replace(rewards=samples.rewards * 0 + 7)

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.inner.add(*args, **kwargs)

    def _get_samples(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def test_a_wrapper_with_properties_for_pos_and_full() -> None:
    wrapper = Wrapper(relive.ReplayBuffer(3, BOX, DISCRETE, device="cpu"))
    for t in range(2):
        add(wrapper, t)
    assert (wrapper.pos, wrapper.full, wrapper.size()) == (2, False, 2)
    add(wrapper, 2)
    assert (wrapper.full, wrapper.size()) == (True, 3)
    assert wrapper.sample(4).rewards.flatten().tolist() == [7] * 4
    wrapper.pos = 1
    assert wrapper.inner.pos == 1


def test_extend_goes_through_an_overridden_add() -> None:
    class Halved(relive.ReplayBuffer):
        def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, *rest: Any, **words: Any) -> None:
            super().add(obs, next_obs, action, reward / 2, *rest, **words)

    for words in (False, True):
        buffer = Halved(4, BOX, DISCRETE, device="cpu")
        obs = np.zeros((3, 1, 2), np.float32)
        zeros = np.zeros((3, 1), bool)
        ends = {"terminated": zeros, "truncated": zeros} if words else {"done": zeros, "infos": [[{}]] * 3}
        buffer.extend(obs, obs, np.zeros((3, 1), int), np.full((3, 1), 4.0), **ends)
        assert buffer.rewards[:3].flatten().tolist() == [2, 2, 2]


def test_a_subclass_with_its_own_state_copies_right() -> None:
    class Counted(relive.ReplayBuffer):
        def __getstate__(self) -> dict[str, Any]:
            state = self.__dict__.copy()
            del state["noise"]
            return state

        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__dict__.update(state)
            self.noise = "made anew"

    buffer = Counted(4, BOX, DISCRETE, device="cpu")
    buffer.noise = lambda: None  # what no pickle takes
    for t in range(6):
        add(buffer, t)
    twin = copy.deepcopy(buffer)
    assert twin.noise == "made anew"
    add(buffer, 6)
    assert twin.transitions(twin.handles()).rewards.flatten().tolist() == [2, 3, 4, 5]
    assert buffer.transitions(buffer.handles()).rewards.flatten().tolist() == [3, 4, 5, 6]


# Rollouts ----------------------------------------------------------------------------


def fill(buffer: relive.RolloutBuffer) -> None:
    for t in range(buffer.buffer_size):
        numbers = np.arange(buffer.n_envs) * 100 + t
        obs = np.repeat(numbers[:, None], 2, 1).astype(np.float32)
        tensor = torch.from_numpy(numbers.astype(np.float32))
        buffer.add(obs, numbers % 3, numbers, np.full(buffer.n_envs, t == 0), tensor, -tensor)
    buffer.compute_returns_and_advantage(torch.zeros(buffer.n_envs), np.zeros(buffer.n_envs))


ROLLOUT_SPACE = spaces.Box(-1000, 1000, (2,), np.float32)


class FlatReader(relive.RolloutBuffer):
    """Reads the arrays as the seed leaves them when it draws: flattened, environment by environment."""

    def _get_samples(self, batch_inds: NDArray, env: Any = None) -> Any:
        data = (
            self.observations[batch_inds],
            self.actions[batch_inds],
            self.values[batch_inds].flatten(),
            self.log_probs[batch_inds].flatten(),
            self.advantages[batch_inds].flatten(),
            self.returns[batch_inds].flatten(),
        )
        return relive.RolloutBufferSamples(*map(self.to_torch, data))


def test_a_rollout_subclass_may_read_flattened_arrays() -> None:
    plain = relive.RolloutBuffer(4, ROLLOUT_SPACE, DISCRETE, device="cpu", n_envs=3)
    flat = FlatReader(4, ROLLOUT_SPACE, DISCRETE, device="cpu", n_envs=3)
    for _ in range(2):
        batches = []
        for buffer in (plain, flat):
            fill(buffer)
            np.random.seed(1)
            batches.append([list(buffer.get(5)), list(buffer.get())])
            buffer.reset()
        for epoch, expected in zip(batches[1], batches[0], strict=True):
            assert len(epoch) == len(expected)
            for ours, theirs in zip(epoch, expected, strict=True):
                assert torch.equal(ours.observations, theirs.observations)
                for name in ("old_values", "old_log_prob", "advantages", "returns"):
                    assert torch.equal(getattr(ours, name), getattr(theirs, name))


class FlattensItself(relive.RolloutBuffer):
    """As sb3-contrib's: flattens all arrays in ``get``, once."""

    def get(self, batch_size: int | None = None) -> Any:  # type: ignore[override]
        assert self.full, "Rollout buffer must be full before sampling from it"
        if not self.generator_ready:
            for name in ("observations", "actions", "values", "log_probs", "advantages", "returns", "episode_starts"):
                self.__dict__[name] = self.swap_and_flatten(self.__dict__[name])
            self.generator_ready = True
        indices = np.random.permutation(self.buffer_size * self.n_envs)
        for start in range(0, len(indices), batch_size or len(indices)):
            yield self._get_samples(indices[start : start + (batch_size or len(indices))])


def test_a_rollout_subclass_may_flatten_in_place() -> None:
    plain = relive.RolloutBuffer(4, ROLLOUT_SPACE, DISCRETE, device="cpu", n_envs=3)
    flat = FlattensItself(4, ROLLOUT_SPACE, DISCRETE, device="cpu", n_envs=3)
    for _ in range(2):
        drawn = []
        for buffer in (plain, flat):
            fill(buffer)
            np.random.seed(1)
            drawn.append([*buffer.get(5), *buffer.get(7)])
        for ours, theirs in zip(*drawn, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        with pytest.raises(relive.errors.ShapeError, match="flattened"):
            flat.compute_returns_and_advantage(torch.zeros(3), np.zeros(3))
        for buffer in (plain, flat):
            buffer.reset()
        assert flat.values.shape == (4, 3)
        assert flat.observations.shape == (4, 3, 2)
