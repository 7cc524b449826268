"""`install` swaps the classes inside Stable-Baselines3 and sb3-contrib, and `uninstall` leaves no trace."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")

import stable_baselines3
from stable_baselines3.common import buffers as sb3_buffers
from stable_baselines3.common import off_policy_algorithm, on_policy_algorithm

import relive.sb3
from relive.sb3 import swap

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def _leaves_no_trace() -> Iterator[None]:
    yield
    relive.sb3.uninstall()


def names() -> dict[str, dict[str, int]]:
    """All that modules of the two packages hold, by identity."""
    return {
        module: {name: id(value) for name, value in vars(sys.modules[module]).items()}
        for module in sorted(sys.modules)
        if module.partition(".")[0] in ("stable_baselines3", "sb3_contrib")
    }


def test_no_module_holds_an_original_while_installed() -> None:
    originals = {getattr(sb3_buffers, name) for name in ("ReplayBuffer", "RolloutBuffer", "NStepReplayBuffer")}
    originals |= {sb3_buffers.DictReplayBuffer, sb3_buffers.DictRolloutBuffer, stable_baselines3.HerReplayBuffer}
    with relive.sb3.installed():
        for module in names():
            assert not originals & {value for value in vars(sys.modules[module]).values() if isinstance(value, type)}
        assert off_policy_algorithm.ReplayBuffer is relive.sb3.ReplayBuffer
        assert off_policy_algorithm.NStepReplayBuffer is relive.sb3.NStepReplayBuffer
        assert on_policy_algorithm.DictRolloutBuffer is relive.sb3.DictRolloutBuffer
        assert stable_baselines3.HerReplayBuffer is relive.sb3.HerReplayBuffer


def test_imports_from_the_module_give_ours() -> None:
    with relive.sb3.installed():
        from stable_baselines3.common import buffers
        from stable_baselines3.common.buffers import ReplayBuffer, psutil

        assert ReplayBuffer is buffers.ReplayBuffer is relive.sb3.ReplayBuffer
        assert importlib.import_module("stable_baselines3.common.buffers") is buffers
        assert psutil is sb3_buffers.psutil


def test_uninstall_restores_every_name() -> None:
    relive.sb3.install()
    relive.sb3.uninstall()
    before = names()
    relive.sb3.install()
    assert names() != before
    relive.sb3.uninstall()
    assert names() == before
    assert sys.modules["stable_baselines3.common.buffers"] is sb3_buffers


def test_a_second_install_does_nothing() -> None:
    relive.sb3.install()
    once, replaced = names(), len(swap._replaced)
    relive.sb3.install()
    assert names() == once
    assert len(swap._replaced) == replaced
    with relive.sb3.installed():
        pass
    assert names() == once


def test_the_original_classes_keep_working_while_installed() -> None:
    """Buffers made before go on: their code finds its own names (``super(ReplayBuffer, self)``)."""
    from gymnasium import spaces

    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,))})
    with relive.sb3.installed():
        buffer = sb3_buffers.DictReplayBuffer(4, space, spaces.Discrete(2), "cpu")
        assert type(buffer).__mro__[1] is sb3_buffers.ReplayBuffer
        assert isinstance(buffer, sb3_buffers.ReplayBuffer)


def test_models_keep_their_buffers_after_uninstall() -> None:
    with relive.sb3.installed():
        model = stable_baselines3.SAC("MlpPolicy", "Pendulum-v1", learning_starts=10, batch_size=8, device="cpu")
        model.learn(15)
    model.learn(5, reset_num_timesteps=False)
    assert type(model.replay_buffer) is relive.sb3.ReplayBuffer
    assert model.replay_buffer.num_transitions == 20


SCRIPT = """
import relive.sb3
relive.sb3.install()
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
model = DQN("MlpPolicy", "CartPole-v1", device="cpu")
assert ReplayBuffer is type(model.replay_buffer) is relive.sb3.ReplayBuffer
"""


def test_in_a_fresh_process() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


WITHOUT = """
import sys
sys.modules["sb3_contrib"] = None
import relive.sb3
with relive.sb3.installed():
    from stable_baselines3.common.buffers import ReplayBuffer
    assert ReplayBuffer is relive.sb3.ReplayBuffer
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "stable_baselines3":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
for name in [name for name in sys.modules if name.startswith(("relive.sb3", "stable_baselines3"))]:
    del sys.modules[name]
try:
    import relive.sb3
except ModuleNotFoundError as error:
    assert "pip install 'relive[sb3]'" in str(error), error
else:
    raise AssertionError("relive.sb3 came without Stable-Baselines3")
"""


def test_without_contrib_and_without_the_package_itself() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)


class Base:
    def __init__(self) -> None:
        self.made_by = ["Base"]


class OtherBase:
    __module__ = "somewhere"

    def __init__(self) -> None:
        self.made_by = ["OtherBase"]


class Child(Base):
    """The child."""

    def __init__(self, *, name: str = "child") -> None:
        super().__init__()
        self.made_by.append(name)

    @property
    def last(self) -> Any:
        return (super().__repr__(), self.made_by[-1])

    @classmethod
    def make(cls) -> Any:
        return super().__new__(cls)

    @staticmethod
    def double(x: int) -> int:
        return 2 * x

    register = classmethod(lambda cls, other: None)


def test_rebase_makes_the_same_class_on_another_base() -> None:
    from relive.sb3.rebase import rebase

    ours: Any = rebase(Child, OtherBase)
    assert ours.__mro__[1:] == (OtherBase, object)
    assert (ours.__name__, ours.__module__, ours.__doc__) == ("Child", "somewhere", "The child.")
    assert ours().made_by == ["OtherBase", "child"]
    assert ours(name="x").last[1] == "x"
    assert type(ours.make()) is ours
    assert ours.double(2) == 4
    assert ours.__init__.__annotations__ == Child.__init__.__annotations__
    assert Child().made_by == ["Base", "child"]
