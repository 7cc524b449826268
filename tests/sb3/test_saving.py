"""Models and buffers save and load as with Stable-Baselines3's own classes; buffers that it pickled are read."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN, SAC, HerReplayBuffer
from stable_baselines3.common import buffers as sb3_buffers
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv

import relive.sb3
from relive.errors import ForeignPickleError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

BOX, DISCRETE = spaces.Box(-100, 100, (2,), np.float32), spaces.Discrete(3)
DICT = spaces.Dict(OrderedDict(z=BOX, a=spaces.Discrete(4), m=spaces.Box(0, 255, (2, 2), np.uint8)))
SPACES = [
    BOX,
    DICT,
    spaces.Discrete(200),
    spaces.MultiDiscrete([200, 200]),
    spaces.MultiBinary(3),
    spaces.Box(-100, 100, (3,), np.float64),
]


def fill(buffer: Any, steps: int, seed: int = 0) -> None:
    """Adds steps that hang together, with ends of both kinds."""
    buffer.observation_space.seed(seed)
    buffer.action_space.seed(seed)
    rng, n_envs = np.random.default_rng(seed), buffer.n_envs

    def observe() -> Any:
        samples = [buffer.observation_space.sample() for _ in range(n_envs)]
        if isinstance(buffer.observation_space, spaces.Dict):
            return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}
        return np.stack(samples)

    obs = observe()
    for _ in range(steps):
        next_obs, dones = observe(), rng.random(n_envs) < 0.3
        infos = [{"TimeLimit.truncated": bool(done and rng.random() < 0.5)} for done in dones]
        actions = np.stack([buffer.action_space.sample() for _ in range(n_envs)])
        buffer.add(obs, next_obs, actions, rng.normal(size=n_envs), dones, infos)
        obs = observe() if dones.any() else next_obs


def assert_draws_alike(ours: Any, theirs: Any) -> None:
    batches = []
    for buffer in (ours, theirs):
        np.random.seed(5)
        batches.append(buffer.sample(64))
    for got, expected in zip(*batches, strict=True):
        assert_equal(got, expected)


def assert_equal(got: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_equal(got[key], expected[key])
    elif expected is not None:
        assert got.dtype == expected.dtype and torch.equal(got, expected)


# Buffers that Stable-Baselines3 pickled ------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("steps", [0, 4, 6, 15])
def test_an_originals_pickle_goes_on_as_it_would_there(steps: int, protocol: int) -> None:
    theirs = sb3_buffers.ReplayBuffer(12, BOX, DISCRETE, "cpu", n_envs=2)
    fill(theirs, steps)
    ours = relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(theirs, protocol)), device="cpu")
    assert type(ours) is relive.sb3.ReplayBuffer
    assert (ours.pos, ours.full, ours.n_envs, ours.buffer_size) == (theirs.pos, theirs.full, 2, 6)
    written = slice(None if theirs.full else theirs.pos)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        assert np.array_equal(np.asarray(getattr(ours, name))[written], getattr(theirs, name)[written])
    for buffer in (ours, theirs):
        fill(buffer, 4, seed=1)
    assert_draws_alike(ours, theirs)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_spaces_and_dtypes_come_back(space: spaces.Space[Any]) -> None:
    kind = "DictReplayBuffer" if isinstance(space, spaces.Dict) else "ReplayBuffer"
    for action_space in (DISCRETE, spaces.Box(-1, 1, (2, 2), np.float64), spaces.MultiBinary(2)):
        theirs = getattr(sb3_buffers, kind)(14, space, action_space, "cpu", n_envs=2)
        fill(theirs, 9)
        ours = relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(theirs)), device="cpu")
        assert type(ours) is getattr(relive.sb3, kind)
        assert ours.observation_space == space and ours.action_space == action_space
        if isinstance(space, spaces.Dict):
            assert list(ours.observation_space.spaces) == list(space.spaces)
        assert_draws_alike(ours, theirs)


def test_dtypes_of_older_releases_are_kept() -> None:
    theirs = sb3_buffers.ReplayBuffer(5, BOX, spaces.Box(-1, 1, (2,), np.float64), "cpu")
    theirs.observations, theirs.actions = theirs.observations.astype(np.float64), theirs.actions.astype(np.float64)
    theirs.next_observations = theirs.next_observations.astype(np.float64)
    fill(theirs, 7)
    ours = relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(theirs)), device="cpu")
    assert ours.actions.dtype == ours.observations.dtype == np.float64
    assert_draws_alike(ours, theirs)


def test_a_pickle_from_before_time_limits_were_handled() -> None:
    theirs = sb3_buffers.ReplayBuffer(5, BOX, DISCRETE, "cpu", handle_timeout_termination=False)
    fill(theirs, 3)
    expected = copy.copy(theirs)
    del theirs.timeouts, theirs.handle_timeout_termination
    ours = relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(theirs)), device="cpu")
    assert ours.handle_timeout_termination is False
    assert_draws_alike(ours, expected)


@pytest.mark.parametrize("steps", [4, 6, 9])
def test_with_optimize_memory_usage_every_step_that_is_one_comes_back(steps: int) -> None:
    """A full ring has lost the observation of its oldest step: that one is left out."""
    theirs = sb3_buffers.ReplayBuffer(
        6, BOX, DISCRETE, "cpu", optimize_memory_usage=True, handle_timeout_termination=False
    )
    fill(theirs, steps)
    ours = relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(theirs)), device="cpu")
    held = 5 if theirs.full else steps
    assert (ours.pos, ours.num_transitions) == (theirs.pos, held)
    rows = (theirs.pos - 1 - np.arange(held)[::-1]) % 6
    batch: Any = ours.transitions(ours.handles())
    expected = sb3_buffers.ReplayBuffer._get_samples(theirs, rows)
    for got, original in zip(batch, expected, strict=True):
        assert_equal(got, original)
    fill(ours, 1)
    assert ours.num_transitions == held + 1


def test_n_step_and_hindsight_buffers() -> None:
    theirs: Any = sb3_buffers.NStepReplayBuffer(12, BOX, DISCRETE, "cpu", n_envs=2, n_steps=2, gamma=0.9)
    fill(theirs, 9)
    ours: Any = relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(theirs)), device="cpu")
    assert type(ours) is relive.sb3.NStepReplayBuffer
    assert (ours.n_steps, ours.gamma) == (2, 0.9)
    assert_draws_alike(ours, theirs)

    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=3, continuous=True)] * 2)
    theirs = HerReplayBuffer(20, env.observation_space, env.action_space, env, "cpu", n_envs=2, copy_info_dict=True)
    fill(theirs, 14)
    ours = relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(theirs)), device="cpu")
    assert type(ours) is relive.sb3.HerReplayBuffer
    assert ours.env is None
    ours.set_env(env)
    assert_draws_alike(ours, theirs)
    for buffer in (ours, theirs):
        buffer.truncate_last_trajectory()
        fill(buffer, 5, seed=1)
    assert_draws_alike(ours, theirs)
    assert ours.infos.tolist() == theirs.infos.tolist()


def test_paths_are_taken_with_and_without_their_suffix(tmp_path: Path) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=30, learning_starts=100, device="cpu").learn(20)
    model.save_replay_buffer(tmp_path / "buffer")
    for path in (tmp_path / "buffer", str(tmp_path / "buffer.pkl")):
        assert relive.sb3.load_replay_buffer(path, "cpu").num_transitions == 20
    with pytest.raises(FileNotFoundError, match=r"nothing\.pkl"):
        relive.sb3.load_replay_buffer(tmp_path / "nothing")


# Files that hold something else --------------------------------------------------------------------------------------


class Runs:
    """Calls a function where a pickle of it is loaded."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def in_a_buffer(value: Any) -> io.BytesIO:
    buffer = sb3_buffers.ReplayBuffer(3, BOX, DISCRETE, "cpu")
    buffer.extra = value
    return io.BytesIO(pickle.dumps(buffer))


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (print, "('builtins', 'print')"),
        (eval, "('builtins', 'eval')"),
        (getattr, "('builtins', 'getattr')"),
        (subprocess.check_output, "('subprocess', 'check_output')"),
        (np.load, "('numpy', 'load')"),
        (torch.load, "('torch.serialization', 'load')"),
        (sb3_buffers.warnings.warn, "('_warnings', 'warn')"),
    ],
)
def test_a_name_that_no_buffer_holds_is_an_error_that_says_it(function: Any, named: str) -> None:
    for file in (in_a_buffer(Runs(function, "1")), io.BytesIO(pickle.dumps(Runs(function, "1")))):
        with pytest.raises(ForeignPickleError, match=named.replace("(", r"\(").replace(")", r"\)")):
            relive.sb3.load_replay_buffer(file)


def test_allowed_names_reach_nothing_through_attributes() -> None:
    for name in ("ReplayBuffer.__init__.__globals__", "warnings", "np.load"):
        code = (
            b"\x80\x04\x8c\x20stable_baselines3.common.buffers"
            + b"\x8c"
            + bytes([len(name)])
            + name.encode()
            + b"\x93."
        )
        with pytest.raises(ForeignPickleError):
            relive.sb3.load_replay_buffer(io.BytesIO(code))


def test_a_file_sets_no_attribute_of_a_class() -> None:
    """BUILD on a class, with a state of slots, would call setattr on it."""
    header = b"\x80\x04\x8c\x20stable_baselines3.common.buffers\x8c\x0cReplayBuffer\x93"
    with pytest.raises(TypeError):
        relive.sb3.load_replay_buffer(io.BytesIO(header + b"N}\x8c\x03addK\x01s\x86b."))
    assert callable(relive.sb3.ReplayBuffer.add)


def test_files_that_hold_no_buffer_or_half_of_one() -> None:
    with pytest.raises(ForeignPickleError, match="holds a dict, expected a replay buffer"):
        relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps({"observations": 1})))
    buffer = sb3_buffers.ReplayBuffer(3, BOX, DISCRETE, "cpu")
    del buffer.actions
    with pytest.raises(ForeignPickleError, match="lacks 'actions'"):
        relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(buffer)))
    with pytest.raises(ForeignPickleError, match="not that of Stable-Baselines3's"):
        relive.sb3.load_replay_buffer(io.BytesIO(pickle.dumps(buffer.__class__.__new__(buffer.__class__))))
    structured = in_a_buffer(np.zeros(2, [("x", "f4")]))
    with pytest.raises(ForeignPickleError, match="dtype 'V4'"):
        relive.sb3.load_replay_buffer(structured)


# Models --------------------------------------------------------------------------------------------------------------


def test_a_model_and_its_buffer_save_and_load(tmp_path: Path) -> None:
    model = SAC(
        "MlpPolicy", "Pendulum-v1", buffer_size=40, learning_starts=10, batch_size=8, device="cpu",
        replay_buffer_class=relive.sb3.ReplayBuffer,
    ).learn(60)  # fmt: skip
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = SAC.load(tmp_path / "model", env=model.get_env(), device="cpu")
    assert loaded.replay_buffer_class is relive.sb3.ReplayBuffer
    assert loaded.replay_buffer.num_transitions == 0
    loaded.load_replay_buffer(tmp_path / "buffer")
    assert type(loaded.replay_buffer) is relive.sb3.ReplayBuffer
    assert_draws_alike(loaded.replay_buffer, model.replay_buffer)
    loaded.learn(10, reset_num_timesteps=False)
    assert loaded.replay_buffer.full


LOADS = """
import sys
from stable_baselines3 import SAC
model = SAC.load(sys.argv[1], device="cpu")
model.load_replay_buffer(sys.argv[2])
assert type(model.replay_buffer).__module__ == "relive.sb3", type(model.replay_buffer)
assert model.replay_buffer.num_transitions == 15
"""


@pytest.mark.parametrize("her", [False, True])
def test_another_process_loads_what_was_saved_under_install_without_it(her: bool, tmp_path: Path) -> None:
    import stable_baselines3

    with relive.sb3.installed():
        env = BitFlippingEnv(n_bits=3, continuous=True)
        buffer_class = stable_baselines3.HerReplayBuffer if her else None
        model = SAC(
            "MultiInputPolicy", env, buffer_size=40, learning_starts=50, device="cpu", replay_buffer_class=buffer_class
        ).learn(15)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    script = LOADS
    if her:
        script = script.replace("SAC.load(sys.argv[1],", "SAC.load(sys.argv[1], env=BitFlippingEnv(3, True),").replace(
            "import sys", "import sys\nfrom stable_baselines3.common.envs import BitFlippingEnv"
        )
    command = [sys.executable, "-c", script, str(tmp_path / "model"), str(tmp_path / "buffer")]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("her", [False, True])
def test_a_model_loads_an_originals_buffer_while_installed(her: bool, tmp_path: Path) -> None:
    def model(**options: Any) -> Any:
        env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=3, continuous=True)] * 2)
        return SAC("MultiInputPolicy", env, buffer_size=40, learning_starts=100, device="cpu", seed=0, **options)

    theirs = model(replay_buffer_class=HerReplayBuffer if her else None).learn(50)
    theirs.save_replay_buffer(tmp_path / "buffer")
    with relive.sb3.installed():
        import stable_baselines3

        ours = model(replay_buffer_class=stable_baselines3.HerReplayBuffer if her else None)
        ours.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=False)
    assert type(ours.replay_buffer).__module__ == "relive.sb3"
    assert_draws_alike(ours.replay_buffer, theirs.replay_buffer)


def test_an_originals_rollout_is_taken_over_while_installed() -> None:
    theirs = sb3_buffers.RolloutBuffer(4, BOX, DISCRETE, "cpu", n_envs=2)
    for t in range(4):
        obs, ones = np.full((2, 2), t, np.float32), np.ones(2)
        theirs.add(obs, np.array([t % 3, 1]), ones * t, ones * (t == 0), torch.ones(2), torch.zeros(2))
    data = pickle.dumps(theirs)
    with relive.sb3.installed():
        ours = pickle.loads(data)
    assert type(ours) is relive.sb3.RolloutBuffer
    batches = []
    for buffer in (ours, theirs):
        buffer.compute_returns_and_advantage(last_values=torch.ones(2), dones=np.zeros(2))
        np.random.seed(0)
        batches.append(list(buffer.get(3)))
    for mine, original in zip(*batches, strict=True):
        for got, expected in zip(mine, original, strict=True):
            assert_equal(got, expected)
    ours.reset()
    assert ours.pos == 0


def test_a_copy_trains_in_a_thread_while_the_buffer_goes_on() -> None:
    """As rl-zoo's ParallelTrainCallback: a deepcopy of the buffer is drawn from while steps are collected."""
    buffer = relive.sb3.ReplayBuffer(400, BOX, DISCRETE, "cpu", n_envs=2)
    fill(buffer, 150)
    twin = copy.deepcopy(buffer)
    kept = np.array(twin.rewards)
    sums: list[float] = []
    thread = threading.Thread(target=lambda: sums.extend(float(twin.sample(32).rewards.sum()) for _ in range(200)))
    thread.start()
    fill(buffer, 100, seed=1)
    thread.join()
    assert len(sums) == 200 and np.isfinite(sums).all()
    assert np.array_equal(twin.rewards, kept)
    assert (twin.pos, buffer.pos, buffer.full) == (150, 50, True)
