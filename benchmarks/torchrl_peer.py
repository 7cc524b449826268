"""TorchRL, which lives in an environment of its own: another process in the same run, so not interleaved.

Run by the interpreter of that environment (``python -m benchmarks.torchrl_peer MEASURE ROUNDS``) it times itself and
prints JSON. It imports nothing that only relive's environment has, and imports TorchRL by name, since relive's
environment does not have it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

from benchmarks.measure import Cost
from benchmarks.timing import Contender, time_interleaved

NAME = "TorchRL"
_CAPACITY, _FRAMES = 1_000_000, 40_000


def cost(python: str, measure: str, rounds: int) -> Cost | None:
    """What TorchRL costs in one of our measures, None where there is none; run by relive's environment."""
    if measure not in _CONTENDERS:
        return None
    command = [python, "-m", "benchmarks.torchrl_peer", measure, str(rounds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    least, median, taken, version = json.loads(done.stdout.splitlines()[-1])
    return Cost(NAME, least, median, taken, f"{version}, other process, same run")


def _steps(count: int) -> Any:
    torch, TensorDict = import_module("torch"), import_module("tensordict").TensorDict

    def flags() -> Any:
        return torch.zeros(count, 1, dtype=torch.bool)

    after = {
        "observation": torch.randn(count, 17),
        "reward": torch.randn(count, 1),
        "done": flags(),
        "terminated": flags(),
    }
    return TensorDict({"observation": torch.randn(count, 17), "action": torch.randn(count, 6), "next": after}, [count])


def _images(count: int) -> Any:
    torch, TensorDict = import_module("torch"), import_module("tensordict").TensorDict

    def frames() -> Any:
        return torch.randint(0, 256, (count, 4, 84, 84), dtype=torch.uint8)

    def flags() -> Any:
        return torch.zeros(count, 1, dtype=torch.bool)

    after = {"observation": frames(), "reward": torch.randn(count, 1), "done": flags(), "terminated": flags()}
    return TensorDict(
        {
            "observation": frames(),
            "action": torch.zeros(count, 1, dtype=torch.int64),
            "next": after,
        },
        [count],
    )


def _buffer(capacity: int, batch: int, chunk: Any) -> Any:
    data = import_module("torchrl.data")
    buffer = data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(capacity), batch_size=batch)
    for _ in range(capacity // len(chunk)):
        buffer.extend(chunk)
    return buffer


def _sample() -> Contender:
    return Contender(NAME, _buffer(_CAPACITY, 256, _steps(50_000)).sample)


def _sample_images(batch: int) -> Contender:
    return Contender(NAME, _buffer(_FRAMES, batch, _images(500)).sample)


def _add(n_envs: int) -> Contender:
    buffer = _buffer(_CAPACITY, 256, _steps(50_000))
    steps = _steps(n_envs)
    if n_envs == 1:
        return Contender(NAME, lambda: buffer.add(steps[0]))
    return Contender(NAME, lambda: buffer.extend(steps))


def _gae(steps: int, n_envs: int) -> Contender:
    torch = import_module("torch")
    estimate = import_module("torchrl.objectives.value.functional").vec_generalized_advantage_estimate

    shape = (n_envs, steps, 1)
    value, next_value, reward = (torch.randn(shape) for _ in range(3))
    done = torch.rand(shape) < 1 / 200
    return Contender(
        NAME,
        lambda: estimate(0.99, 0.95, value, next_value, reward, done, done),
    )


_CONTENDERS: dict[str, Callable[[], Contender]] = {
    "sample": _sample,
    "add-1": lambda: _add(1),
    "add-64": lambda: _add(64),
    "images-32": lambda: _sample_images(32),
    "images-256": lambda: _sample_images(256),
    "gae-2048x1": lambda: _gae(2048, 1),
    "gae-128x64": lambda: _gae(128, 64),
    "gae-128x4096": lambda: _gae(128, 4096),
}


def _main() -> None:
    import_module("torch").set_num_threads(1)
    (timing,) = time_interleaved([_CONTENDERS[sys.argv[1]]()], int(sys.argv[2]))
    print(json.dumps([timing.fastest, timing.median, timing.rounds, metadata.version("torchrl")]))


if __name__ == "__main__":
    _main()
