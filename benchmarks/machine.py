"""On what, and with what, the figures were taken."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("relive", "stable-baselines3", "cpprb", "rlox", "tianshou", "torch", "numpy", "gymnasium")
#: Above this load per run a machine is not quiet: the benchmark itself needs one core.
QUIET = 0.5


def facts() -> dict[str, Any]:
    """What a reader of the figures must know; times of other machines do not compare."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count(),
        "threads": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_at_start": load(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def load() -> float:
    """How many processes wanted a core in the last minute."""
    return round(psutil.getloadavg()[0], 2)


def _cpu() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}{_family(listing)}"
    return platform.processor() or platform.machine()


def _family(listing: Path) -> str:
    """Family and model, since virtual machines hide the name of the processor."""
    numbers = dict.fromkeys(("cpu family", "model"), "?")
    for line in listing.read_text().splitlines():
        key = line.split(":", 1)[0].strip()
        if key in numbers:
            numbers[key] = line.split(":", 1)[1].strip()
    return f" (family {numbers['cpu family']}, model {numbers['model']})"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
