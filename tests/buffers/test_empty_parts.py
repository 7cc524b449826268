"""Parts of a step that have no numbers: a Dict whose tasks fill different parts (incubator 128)."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import relive
from tests import zoo

NUMBER = spaces.Box(-np.inf, np.inf, (1,), np.float32)
EMPTY = spaces.Box(-1, 1, (0,), np.float32)
DICT = spaces.Dict({"empty": spaces.Box(-1, 1, (3, 0, 2), np.float32), "t": NUMBER})

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "n-step": {"n_steps": 3, "gamma": 0.5},
    "prioritized": {"sampler": relive.Prioritized()},
    "epochs": {"sampler": relive.Uniform(replacement=False)},
}


def obs_of(t: float, n_envs: int = 1, dtype: Any = np.float32) -> dict[str, Any]:
    return {"empty": np.zeros((n_envs, 3, 0, 2), dtype), "t": np.full((n_envs, 1), t, dtype)}


def filled(
    action: spaces.Space = EMPTY, n_envs: int = 1, dtype: Any = np.float32, **options: Any
) -> relive.ReplayBuffer:
    """Three episodes of four steps each in a ring of eight; step t sees t, gets t, and ends at t + 0.5."""
    buffer = relive.ReplayBuffer(8 * n_envs, DICT, action, device="cpu", n_envs=n_envs, seed=0, **options)
    for t in range(12):
        ends = t % 4 == 3
        taken = np.zeros((n_envs, *action.shape), dtype if action is EMPTY else np.int64)
        following = obs_of(t + 0.5 if ends else t + 1, n_envs, dtype)
        buffer.add(obs_of(t, n_envs, dtype), following, taken, np.full(n_envs, t), np.full(n_envs, ends))
    return buffer


def assert_whole(batch: Any) -> None:
    """Rows are whole: what has numbers belongs together, and what has none has its shape."""
    t, after = batch.observations["t"].flatten(), batch.next_observations["t"].flatten()
    assert torch.equal(after, torch.where(batch.dones.flatten() > 0, t + 0.5, t + 1))
    assert torch.equal(batch.rewards.flatten(), t)
    for part in (batch.observations, batch.next_observations):
        assert part["empty"].shape == (len(t), 3, 0, 2)
    assert batch.actions.shape == (len(t), 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["as stored", "converted"])
@pytest.mark.parametrize("n_envs", [1, 2])
def test_a_dict_with_an_empty_part_is_stored_and_drawn(n_envs: int, dtype: Any) -> None:
    buffer = filled(n_envs=n_envs, dtype=dtype)
    assert len(buffer) == 8 * n_envs
    assert_whole(buffer.sample(50))
    assert_whole(buffer.transitions(buffer.handles()))
    assert buffer.next_observations["empty"].shape == (8, n_envs, 3, 0, 2)
    assert np.asarray(buffer.next_observations["empty"]).shape == (8, n_envs, 3, 0, 2)


@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_drawn_in_every_way(options: str) -> None:
    buffer = filled(**OPTIONS[options])
    batch = buffer.sample(4)
    assert batch.observations["empty"].shape == batch.next_observations["empty"].shape == (4, 3, 0, 2)
    sequences = buffer.sample_sequences(5, 3)
    assert sequences.observations["empty"].shape == (5, 3, 3, 0, 2)
    assert sequences.actions.shape == (5, 3, 0)
    for episode in buffer.episodes():
        assert episode.observations["empty"].shape == episode.next_observations["empty"].shape == (4, 3, 0, 2)
    with buffer.stream(2) as batches:
        assert next(batches).actions.shape == (2, 0)
    assert buffer.sample(2, env=zoo.ScaleEnv()).observations["empty"].shape == (2, 3, 0, 2)


@pytest.mark.parametrize("steps", [5, 25])
@pytest.mark.parametrize("validate", ["strict", "seed"])
def test_it_is_extended_by(steps: int, validate: Any) -> None:
    buffer = relive.ReplayBuffer(16, DICT, EMPTY, device="cpu", n_envs=2, validate=validate)
    t = np.arange(steps, dtype=np.float32)[:, None, None].repeat(2, 1)
    empty, actions = np.zeros((steps, 2, 3, 0, 2), np.float32), np.zeros((steps, 2, 0), np.float32)
    buffer.extend(
        {"empty": empty, "t": t}, {"empty": empty, "t": t + 1}, actions, t[..., 0], np.zeros((steps, 2), bool)
    )
    assert len(buffer) == 2 * min(steps, 8)
    assert_whole(buffer.sample(20))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_copied(options: str, copied: Callable[[Any], Any]) -> None:
    buffer = copied(filled(**OPTIONS[options]))
    assert len(buffer) == len(buffer.handles()) == 8
    batch, expected = buffer.sample(4), filled(**OPTIONS[options]).sample(4)
    assert batch.observations["empty"].shape == (4, 3, 0, 2)
    assert torch.equal(batch.rewards, expected.rewards)
    if options != "n-step":
        assert_whole(batch)


def test_it_is_assigned_and_set() -> None:
    buffer = filled()
    buffer.next_observations = {key: np.asarray(part) for key, part in buffer.next_observations.items()}
    buffer.observations = {key: np.asarray(part) for key, part in buffer.observations.items()}
    buffer.rebuild()
    assert buffer.set(buffer.handles(), action=np.zeros((8, 0))) == 0
    buffer.interrupt()
    assert_whole(buffer.transitions(buffer.handles()))


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("action", [EMPTY, spaces.Discrete(3)], ids=["empty", "discrete"])
def test_a_step_may_have_nothing_but_its_reward(action: spaces.Space, n_envs: int) -> None:
    buffer = relive.ReplayBuffer(4 * n_envs, EMPTY, action, device="cpu", n_envs=n_envs, seed=0)
    nothing = np.zeros((n_envs, 0), np.float32)
    for t in range(6):
        buffer.add(
            nothing, nothing, np.zeros((n_envs, *action.shape), action.dtype), np.full(n_envs, t), [t == 4] * n_envs
        )
    batch = buffer.sample(40)
    assert set(batch.rewards.flatten().tolist()) == {2, 3, 4, 5}
    assert batch.observations.shape == batch.next_observations.shape == (40, 0)


def test_hindsight_goes_on_around_it() -> None:
    space = spaces.Dict({"observation": EMPTY, "achieved_goal": NUMBER, "desired_goal": NUMBER})
    hindsight = relive.Hindsight(
        lambda achieved, desired, info: (achieved == desired).all(-1),
        strategy="final",
        compute_terminated=lambda achieved, desired, info: (achieved == desired).all(-1),
        copy_info=("nothing",),
    )
    for n_steps in (1, 3):
        fields = {"nothing": ((0,), np.float32)}
        buffer = relive.ReplayBuffer(
            8, space, EMPTY, device="cpu", hindsight=hindsight, n_steps=n_steps, gamma=1.0, seed=0, fields=fields
        )
        for t in range(4):
            obs, following = (
                {"observation": np.zeros((1, 0)), "achieved_goal": [[float(at)]], "desired_goal": [[9.0]]}
                for at in (t, t + 1)
            )
            buffer.add(obs, following, np.zeros((1, 0)), [0.0], [t == 3], [{"nothing": np.zeros(0)}])
        batch = buffer.sample(20)
        rewards = batch.rewards.flatten()[batch.relabelled]
        starts = batch.observations["achieved_goal"].flatten()[batch.relabelled]
        assert torch.equal(rewards, (starts + n_steps >= 4).float())
        sequences = buffer.sample_sequences(6, 2)
        assert sequences.observations["observation"].shape == (6, 2, 0)


def test_declared_fields_may_be_empty() -> None:
    fields = {"x": ((0,), np.float32), "y": ((2, 0), np.int64)}
    buffer = relive.ReplayBuffer(4, NUMBER, EMPTY, device="cpu", fields=fields)
    extras = {"x": np.zeros((1, 0), np.float32), "y": np.zeros((1, 2, 0), np.int64)}
    buffer.add([[0.0]], [[1.0]], np.zeros((1, 0)), [0.0], [False], extras=extras)
    buffer.set(buffer.handles(), extras={"x": np.zeros((1, 0))})
    assert {name: tuple(part.shape) for name, part in buffer.sample(3).extras.items()} == {"x": (3, 0), "y": (3, 2, 0)}


@pytest.mark.parametrize("many", [False, True], ids=["add", "extend"])
def test_a_reservoir_takes_it(many: bool) -> None:
    reservoir = relive.Reservoir(8, DICT, EMPTY, device="cpu", seed=0)
    for t in range(20):
        step = (obs_of(t), obs_of(t + 1), np.zeros((1, 0), np.float32), np.full(1, t), np.zeros(1, bool))
        if many:
            obs, following = ({key: part[None] for key, part in tree.items()} for tree in step[:2])
            reservoir.extend(obs, following, *(part[None] for part in step[2:]))
        else:
            reservoir.add(*step)
    assert_whole(reservoir.sample(20))
    assert_whole(pickle.loads(pickle.dumps(reservoir)).sample(20))


@pytest.mark.parametrize("n_envs", [1, 2])
def test_a_rollout_takes_it(n_envs: int) -> None:
    rollout = relive.RolloutBuffer(4, DICT, EMPTY, device="cpu", n_envs=n_envs)
    for t in range(4):
        numbers = np.full(n_envs, t, np.float32)
        rollout.add(obs_of(t, n_envs), np.zeros((n_envs, 0)), numbers, numbers == 0, numbers, numbers)
    rollout.compute_returns_and_advantage(np.zeros(n_envs), np.zeros(n_envs))
    sizes = []
    for batch in rollout.get(3):
        assert torch.equal(batch.observations["t"].flatten(), batch.old_values)
        assert batch.observations["empty"].shape == (len(batch.old_values), 3, 0, 2)
        assert batch.actions.shape == (len(batch.old_values), 0)
        sizes.append(len(batch.old_values))
    assert sum(sizes) == 4 * n_envs


def test_buffers_with_it_mix() -> None:
    assert_whole(relive.mix({filled(): 0.5, filled(): 0.5}).sample(10))


@pytest.mark.parametrize(
    "bad", [np.zeros((1, 3, 1, 2)), np.zeros((1, 0)), np.zeros((1, 2, 0, 2))], ids=lambda a: str(a.shape)
)
def test_an_empty_part_of_another_shape_is_refused(bad: Any) -> None:
    buffer = filled()
    with pytest.raises(relive.errors.ShapeError, match=r"obs/empty has shape .* expected \(1, 3, 0, 2\)"):
        buffer.add(obs_of(0) | {"empty": bad}, obs_of(1), np.zeros((1, 0)), [0.0], [False])
    assert len(buffer) == 8
