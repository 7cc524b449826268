"""Runs CleanRL's off-policy scripts with their own replay buffer and with relive's, and compares what they learn.

    python scripts/check_cleanrl.py PATH_TO_A_CLEANRL_CHECKOUT [--steps 2500] [--only dqn c51]

The checkout is copied into a temporary folder, where the one line that imports the buffer is changed. Each script then
runs twice with the same seed, on the CPU with one thread. Afterwards every parameter of every network, the state of
every optimizer and the state of NumPy's generator must be equal bit for bit. Nothing is written to the checkout.

CleanRL's loop is written for vector environments of Gymnasium 0.29, and its passive checker for NumPy 1, so use an
environment of its own, with Python 3.11 or older:

    pip install relive "gymnasium==0.29.1" "mujoco==2.3.3" imageio "numpy<2" tyro tensorboard

Gymnasium 0.29 imports imageio for its MuJoCo environments (Hopper here), also where nothing is rendered.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

OLD = "from cleanrl_utils.buffers import ReplayBuffer"
NEW = "from relive import ReplayBuffer"


class Run(NamedTuple):
    """A script and its environment."""

    script: str
    env: str


# Pendulum ends by time limits only, CartPole and Hopper nearly always by terminating.
RUNS = (
    Run("dqn", "CartPole-v1"),
    Run("c51", "CartPole-v1"),
    Run("sac_continuous_action", "Hopper-v4"),
    Run("sac_continuous_action", "Pendulum-v1"),
    Run("td3_continuous_action", "Hopper-v4"),
    Run("td3_continuous_action", "Pendulum-v1"),
)
RING = 1000


class Outcome(NamedTuple):
    """What a run left: every tensor by name, the seconds it took, its buffer's module, and why it failed if it did."""

    tensors: dict[str, torch.Tensor]
    seconds: float
    module: str = ""
    error: str = ""


def main() -> int:
    """Compares all scripts; the exit status is the number of those that differ or fail."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of CleanRL; it is only read")
    parser.add_argument("--steps", type=int, default=2500, help="environment steps of each run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the scripts' --seed (default: %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", help="only these scripts")
    options = parser.parse_args()
    if options.steps < 2 * RING:
        parser.error(f"--steps is {options.steps}, expected at least {2 * RING}: the ring has to wrap")
    console = Console(soft_wrap=True)
    table = Table("script", "environment", "parameters", "tensors", "CleanRL's, s", "relive, s")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        shutil.copytree(options.checkout / "cleanrl_utils", scratch / "cleanrl_utils")
        for run in RUNS:
            if options.only and run.script not in options.only:
                continue
            verdict, theirs, ours = compare(options.checkout, scratch, run, options.steps, options.seed)
            wrong += verdict != "identical"
            row = (verdict, str(len(theirs.tensors)), f"{theirs.seconds:.1f}", f"{ours.seconds:.1f}")
            table.add_row(run.script, run.env, *row)
            console.print(f"{run.script} on {run.env}: {verdict}")
            for error in filter(None, (theirs.error, ours.error)):
                console.print(error, markup=False)
    console.print(table)
    return wrong


def compare(checkout: Path, scratch: Path, run: Run, steps: int, seed: int) -> tuple[str, Outcome, Outcome]:
    """The verdict on one script, with the outcome with CleanRL's buffer and with relive's."""
    source = (checkout / "cleanrl" / f"{run.script}.py").read_text()
    if source.count(OLD) != 1:
        raise SystemExit(f"{run.script}.py has {source.count(OLD)} lines {OLD!r}, expected 1: another CleanRL?")
    theirs = execute(scratch / "theirs" / f"{run.script}.py", source, run, steps, seed)
    ours = execute(scratch / "ours" / f"{run.script}.py", source.replace(OLD, NEW), run, steps, seed)
    if theirs.error or ours.error:
        return "CleanRL itself fails" if theirs.error else "fails with relive", theirs, ours
    if (theirs.module.split(".")[0], ours.module.split(".")[0]) != ("cleanrl_utils", "relive"):
        return f"compared {theirs.module} with {ours.module}", theirs, ours
    if same(theirs.tensors, ours.tensors):
        return "identical", theirs, ours
    again = execute(scratch / "again" / f"{run.script}.py", source, run, steps, seed)
    return "differ" if same(theirs.tensors, again.tensors) else "not repeatable", theirs, ours


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether two runs left the same tensors, bit for bit."""
    return bool(first) and first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def execute(script: Path, source: str, run: Run, steps: int, seed: int) -> Outcome:
    """Runs a script in a process of its own."""
    script.parent.mkdir(exist_ok=True)
    script.write_text(source)
    result = script.with_name(f"{run.script}-{run.env}.pt")
    arguments = ["--env-id", run.env, "--total-timesteps", str(steps), "--seed", str(seed)]
    arguments += ["--learning-starts", "500", "--buffer-size", str(RING)]
    arguments += ["--no-track", "--no-capture-video", "--no-cuda"]
    environment = {**os.environ, "PYTHONPATH": str(script.parent.parent), "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--child", str(script), str(result), *arguments],
        cwd=script.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        return Outcome({}, seconds, error="\n".join(done.stderr.splitlines()[-6:]))
    left = torch.load(result)
    return Outcome(left["tensors"], seconds, left["module"])


def child(script: str, result: str, arguments: list[str]) -> None:
    """Runs a script as the main program and saves what it learned."""
    sys.argv = [script, *arguments]
    names = runpy.run_path(script, run_name="__main__")
    tensors = {
        f"{name}.{key}": value
        for name, owner in names.items()
        if isinstance(owner, torch.nn.Module | torch.optim.Optimizer)
        for key, value in flat(owner.state_dict())
    }
    tensors["numpy.random"] = torch.from_numpy(np.random.get_state(legacy=False)["state"]["key"].astype(np.int64))
    torch.save({"tensors": tensors, "module": type(names["rb"]).__module__}, result)


def flat(value: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """All tensors in nested dicts and lists, with their paths."""
    if isinstance(value, torch.Tensor):
        return [(path, value.detach())]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in flat(item, f"{path}/{key}")]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        raise SystemExit(main())
