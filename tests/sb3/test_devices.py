"""Devices as Stable-Baselines3 takes them: CUDA is the CPU where there is none."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("stable_baselines3")

from stable_baselines3.common import buffers as sb3_buffers
from stable_baselines3.common.utils import get_device

import relive.sb3
from relive import errors

BOX, DISCRETE = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("device", ["cuda", "cuda:3", torch.device("cuda"), "auto", "cpu", "meta"], ids=str)
@pytest.mark.parametrize("name", ["ReplayBuffer", "RolloutBuffer"])
def test_a_face_goes_where_the_original_goes(name: str, device: Any) -> None:
    face = getattr(relive.sb3, name)(4, BOX, DISCRETE, device=device)
    original = getattr(sb3_buffers, name)(4, BOX, DISCRETE, device=device)
    assert face.device == original.device == get_device(device)
    face.device = device  # `load_replay_buffer` assigns the model's, which the original takes as it comes
    assert face.device == (device if isinstance(device, torch.device) else get_device(device))


@pytest.mark.usefixtures("no_gpu")
def test_classes_on_the_faces_go_there_too() -> None:
    class Mine(relive.sb3.BaseBuffer):
        def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
            raise NotImplementedError

    class Skipping(relive.sb3.ReplayBuffer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super(relive.sb3.ReplayBuffer, self).__init__(*arguments, **options)

    for kind in (Mine, Skipping, relive.sb3.NStepReplayBuffer):
        assert kind(4, BOX, DISCRETE, device="cuda").device == torch.device("cpu")


@pytest.mark.usefixtures("no_gpu")
def test_other_devices_that_are_not_there_are_refused() -> None:
    for device in ("nonsense", "hpu"):
        with pytest.raises(errors.DeviceError, match=f"device is '{device}'"):
            relive.sb3.ReplayBuffer(4, BOX, DISCRETE, device=device)


def saved_elsewhere(kind: Any) -> bytes:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        buffer = kind(4, BOX, DISCRETE, device="cuda")
    obs = np.zeros((1, 2), np.float32)
    buffer.add(obs, obs, np.array([1]), np.array([0.5]), np.array([False]), [{}])
    return pickle.dumps(buffer)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("kind", ["face", "original", "n-step"])
def test_a_buffer_that_was_saved_on_a_gpu_draws_on_a_laptop(kind: str, tmp_path: Path) -> None:
    """What `model.load_replay_buffer` does: it unpickles, then assigns the model's device."""
    kinds = {
        "face": relive.sb3.ReplayBuffer,
        "original": sb3_buffers.ReplayBuffer,
        "n-step": relive.sb3.NStepReplayBuffer,
    }
    content = saved_elsewhere(kinds[kind])
    with relive.sb3.installed(), pytest.warns(errors.DeviceWarning, match="'cuda'"):
        buffer = pickle.loads(content)
    assert isinstance(buffer, relive.sb3.ReplayBuffer)
    buffer.device = "auto"
    assert buffer.sample(2).rewards.flatten().tolist() == [0.5, 0.5]


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("device", ["auto", "cuda", "cpu"])
def test_the_device_of_a_pickle_of_stable_baselines3_can_be_chosen(device: str) -> None:
    content = saved_elsewhere(sb3_buffers.ReplayBuffer)
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.DeviceWarning)
        buffer = relive.sb3.load_replay_buffer(io.BytesIO(content), device=device)
    assert buffer.device == torch.device("cpu")
    assert buffer.sample(1).rewards.item() == 0.5
