"""TorchRL's side of the measures: ``python -m benchmarks.torchrl_peer MEASURE``, by an interpreter that has TorchRL.

It speaks with `guests.py` over its standard streams. It imports nothing that only relive's environment has, and imports
TorchRL by name, since relive's environment does not have it.

Its fastest setup that gives the same counts, found by trying: the plain ``ReplayBuffer`` is faster than those that put
the drawn rows' numbers into the batch too, and slices are faster without the flags that TorchRL can set in them.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from typing import Any, TextIO

from benchmarks.timing import Contender, no_garbage_collection

NAME = "TorchRL"
BY_TRAJECTORY = "TorchRL traj_key"
_CAPACITY, _FRAMES, _BATCH = 1_000_000, 40_000, 256
_ALPHA, _BETA, _EPS = 0.6, 0.4, 1e-6
_SLICES, _LENGTH, _EPISODE = 32, 64, 200


def _steps(count: int, first: int = 0) -> Any:
    """Random vectors, in episodes of 200 steps; ``first`` is the number of the first one."""
    torch, TensorDict = import_module("torch"), import_module("tensordict").TensorDict
    number = torch.arange(first, first + count)
    ended = ((number + 1) % _EPISODE == 0).unsqueeze(1)
    after = {
        "observation": torch.randn(count, 17),
        "reward": torch.randn(count, 1),
        "done": ended,
        "terminated": ended.clone(),
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


def _filled(buffer: Any, capacity: int, chunk: Any) -> Any:
    for _ in range(capacity // len(chunk)):
        buffer.extend(chunk)
    return buffer


def _buffer(capacity: int, batch: int, chunk: Any) -> Any:
    data = import_module("torchrl.data")
    buffer = data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(capacity), batch_size=batch)
    return _filled(buffer, capacity, chunk)


def _sample() -> list[Contender]:
    return [Contender(NAME, _buffer(_CAPACITY, _BATCH, _steps(50_000)).sample)]


def _sample_images(batch: int) -> list[Contender]:
    return [Contender(NAME, _buffer(_FRAMES, batch, _images(500)).sample)]


def _add(n_envs: int) -> list[Contender]:
    buffer = _buffer(_CAPACITY, _BATCH, _steps(50_000))
    steps = _steps(n_envs)
    if n_envs == 1:
        return [Contender(NAME, lambda: buffer.add(steps[0]))]
    return [Contender(NAME, lambda: buffer.extend(steps))]


def _gae(steps: int, n_envs: int) -> list[Contender]:
    torch = import_module("torch")
    estimate = import_module("torchrl.objectives.value.functional").vec_generalized_advantage_estimate

    shape = (n_envs, steps, 1)
    value, next_value, reward = (torch.randn(shape) for _ in range(3))
    done = torch.rand(shape) < 1 / 200
    return [
        Contender(
            NAME,
            lambda: estimate(0.99, 0.95, value, next_value, reward, done, done),
        )
    ]


def _prioritized() -> Any:
    torch, data = import_module("torch"), import_module("torchrl.data")
    sampler = data.PrioritizedSampler(max_capacity=_CAPACITY, alpha=_ALPHA, beta=_BETA, eps=_EPS)
    buffer = data.ReplayBuffer(storage=data.LazyTensorStorage(_CAPACITY), sampler=sampler, batch_size=_BATCH)
    _filled(buffer, _CAPACITY, _steps(50_000))
    buffer.update_priority(torch.arange(_CAPACITY), torch.randn(_CAPACITY).abs())
    return buffer


def _prioritized_sample() -> list[Contender]:
    buffer = _prioritized()
    return [Contender(NAME, lambda: buffer.sample(return_info=True))]


def _prioritized_update() -> list[Contender]:
    torch, buffer = import_module("torch"), _prioritized()
    # Odd and even: the same rows do not meet the same priorities again for a long time (prioritized.py).
    drawn = itertools.cycle([buffer.sample(return_info=True)[1]["index"] for _ in range(251)])
    priorities = itertools.cycle(torch.randn(256, _BATCH).abs())
    return [Contender(NAME, lambda: buffer.update_priority(next(drawn), next(priorities)))]


def _slices() -> list[Contender]:
    """Slices right after a write: episodes told apart by their ends, which TorchRL advises, and by their numbers."""
    torch, data = import_module("torch"), import_module("torchrl.data")
    contenders = []
    for name, keys in ((NAME, {"end_key": ("next", "done")}), (BY_TRAJECTORY, {"traj_key": "episode"})):
        sampler = data.SliceSampler(
            slice_len=_LENGTH, strict_length=True, cache_values=True, truncated_key=None, init_key=None, **keys
        )
        buffer = data.ReplayBuffer(
            storage=data.LazyTensorStorage(_CAPACITY), sampler=sampler, batch_size=_SLICES * _LENGTH
        )
        numbers = itertools.count(_CAPACITY)
        for first in range(0, _CAPACITY, 50_000):
            chunk = _steps(50_000)
            if name == BY_TRAJECTORY:
                chunk["episode"] = torch.arange(first, first + 50_000) // _EPISODE
            buffer.extend(chunk)
        ring = _steps(_EPISODE)
        if name == BY_TRAJECTORY:
            ring["episode"] = torch.zeros(_EPISODE, dtype=torch.int64)
        contenders.append(_slices_of(name, buffer, ring.unbind(0), numbers))
    return contenders


def _slices_of(name: str, buffer: Any, ring: Sequence[Any], numbers: Any) -> Contender:
    def write() -> None:
        number = next(numbers)
        step = ring[number % _EPISODE]
        if name == BY_TRAJECTORY:
            step["episode"].fill_(number // _EPISODE)
        buffer.add(step)

    return Contender(name, lambda: buffer.sample().view(_SLICES, _LENGTH), before=write)


#: By measure.
CONTENDERS: dict[str, Callable[[], list[Contender]]] = {
    "sample": _sample,
    "add-1": lambda: _add(1),
    "add-64": lambda: _add(64),
    "images-32": lambda: _sample_images(32),
    "images-256": lambda: _sample_images(256),
    "gae-2048x1": lambda: _gae(2048, 1),
    "gae-128x64": lambda: _gae(128, 64),
    "gae-128x4096": lambda: _gae(128, 4096),
    "prioritized-sample": _prioritized_sample,
    "prioritized-update": _prioritized_update,
    "sequences": _slices,
}


def _main(measure: str, answers: TextIO) -> None:
    os.environ.setdefault("RL_LOGGING_LEVEL", "WARNING")
    import_module("torch").set_num_threads(1)
    contenders = CONTENDERS[measure]()
    offer = [{"name": each.name, "operations": each.operations, "note": each.note} for each in contenders]
    print(json.dumps({"version": metadata.version("torchrl"), "contenders": offer}), file=answers, flush=True)
    with no_garbage_collection():
        for line in sys.stdin:
            place, calls = map(int, line.split()[1:])
            print(contenders[place].run(calls), file=answers, flush=True)


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as _answers:
        os.dup2(2, 1)  # whatever else is printed, here or in native code, is no answer
        _main(sys.argv[1], _answers)
