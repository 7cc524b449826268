"""The tables of adders.py, row by row, through every way to add and with extra fields along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import relive
from tests.cases.adders import N_STEP, SEQUENCES, NStepCase, SequenceCase, Steps
from tests.cases.chains import replay

FIELDS = {"seen": ((2,), np.float32)}
WAYS = ["add", "extend"]


def fill(buffer: relive.ReplayBuffer, steps: Steps, seen_last: Iterable[float], way: str) -> None:
    """With the observation in the extra field as well."""
    ends = iter(seen_last)
    newest = len(steps) - 1
    after = [next(ends) if end or i == newest else steps[i + 1][0] for i, (_, _, end) in enumerate(steps)]
    obs = np.array([[[o]] for o, _, _ in steps], np.float32)
    following = np.array(after, np.float32)[:, None, None]
    rewards = np.array([[r] for _, r, _ in steps], np.float32)
    terminated = np.array([[end == "T"] for _, _, end in steps])
    truncated = np.array([[end == "L"] for _, _, end in steps])
    actions = np.zeros((len(steps), 1), int)
    seen = np.repeat(obs, 2, axis=-1)
    if way == "extend":
        buffer.extend(
            obs, following, actions, rewards, terminated=terminated, truncated=truncated, extras={"seen": seen}
        )
        return
    for i in range(len(steps)):
        words: dict[str, Any] = {"terminated": terminated[i], "truncated": truncated[i], "extras": {"seen": seen[i]}}
        buffer.add(obs[i], following[i], actions[i], rewards[i], **words)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", N_STEP, ids=lambda case: case.name)
def test_n_step(case: NStepCase, way: str) -> None:
    shape = case.reward_shape
    buffer = replay(10, n_steps=case.n_steps, gamma=case.gamma, fields=FIELDS, reward_shape=shape, seed=0)
    fill(buffer, case.steps, case.seen_last, way)
    batch = buffer.sample(500)
    discounts = np.full((500, 1), case.gamma) if batch.discounts is None else batch.discounts
    drawn = set()
    for row in range(500):
        reward = tuple(batch.rewards[row].tolist()) if shape else batch.rewards[row].item()
        observation = batch.observations[row].item()
        assert batch.extras["seen"][row].tolist() == [observation, observation]
        rest = (discounts[row].item(), batch.dones[row].item(), batch.next_observations[row].item())
        drawn.add((observation, reward, *rest))
    assert drawn == set(case.rows)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", SEQUENCES, ids=lambda case: case.name)
def test_sequences(case: SequenceCase, way: str) -> None:
    buffer = replay(10, fields=FIELDS, seed=0)
    fill(buffer, case.steps, case.seen_last, way)
    assert buffer.count_sequences(case.length, **case.options) == len(case.rows)
    if not case.rows:
        with pytest.raises(relive.errors.EmptyBufferError):
            buffer.sample_sequences(1, case.length, **case.options)
        return
    batch = buffer.sample_sequences(500, case.length, **case.options)
    drawn = set()
    for row in range(500):
        mask = batch.mask[row]
        observations = batch.observations[row][mask].flatten()
        drawn.add(tuple(observations.tolist()))
        assert mask.tolist() == sorted(mask.tolist(), reverse=True)  # padding comes last
        assert batch.extras["seen"][row][mask].tolist() == [[o, o] for o in observations.tolist()]
        assert not batch.extras["seen"][row][~mask].any()
    assert drawn == set(case.rows)
