"""Settings of the whole suite.

Hypothesis searches a little by default, and much longer with ``--hypothesis-profile=deep`` or the environment variable
``HYPOTHESIS_PROFILE=deep``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("quick", max_examples=150, stateful_step_count=50, **_common)
settings.register_profile("deep", max_examples=3000, stateful_step_count=80, **_common)
# For the mutation tests: a fault need only be found, not made small, which can take minutes.
settings.register_profile(
    "find", max_examples=150, stateful_step_count=50, phases=[Phase.explicit, Phase.generate], **_common
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and this machine has none"))


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that has nothing to do with NumPy's global one."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _global_generator_stays_as_it_is() -> Iterator[None]:
    """Tests may seed, draw from and swap NumPy's global generator."""
    bits, state = np.random.get_bit_generator(), np.random.get_bit_generator().state
    yield
    np.random.set_bit_generator(bits)
    bits.state = state
