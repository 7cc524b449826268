"""`relive demo`: train an agent on a real environment, its experience in a relive buffer, and say what that took."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console()


class Algorithm(str, Enum):
    """The example learners."""

    dqn = "dqn"
    ppo = "ppo"


@dataclass(frozen=True)
class Report:
    """The numbers of a run, as printed and written to ``result.json``."""

    algorithm: str
    env_id: str
    seed: int
    mean_return: float
    target: float | None
    env_steps: int
    seconds: float
    env_steps_per_second: float
    draws: int
    draws_per_second_inside: float
    draws_per_second_overall: float
    buffer_bytes: int
    sb3_bytes: int
    curve: list[tuple[int, float]]

    @property
    def reached(self) -> bool:
        """Whether the target, where there is one, was reached."""
        return self.target is None or self.mean_return >= self.target


def demo(
    algo: Annotated[Algorithm, typer.Option(help="The learner: DQN through a replay buffer, PPO through rollouts.")] = (
        Algorithm.dqn
    ),
    env: Annotated[str, typer.Option(help="A Gymnasium environment with Box observations and Discrete actions.")] = (
        "CartPole-v1"
    ),
    steps: Annotated[
        int | None, typer.Option(help="At most so many environment steps.", show_default="100,000; 200,000 for PPO")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same run, on the same machine.")] = 0,
    device: Annotated[str, typer.Option(help="Where the networks are: cpu, cuda, …")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="The run folder.", show_default="runs/ENV-ALGO-seedSEED")] = None,
) -> None:
    """Train until CartPole-v1 is solved (a mean return of 475), or another environment for all its steps.

    Ends with status 0, with 1 where the target was not reached, and with 2 where the call makes no sense.
    """
    learner, config = _prepare(algo, env, steps, seed, device)
    folder = _make_folder(out or Path("runs") / f"{env.replace('/', '-')}-{algo.value}-seed{seed}")
    console.print(f"{algo.value.upper()} on {env}, seed {seed}, at most {config.total_steps:,} environment steps")
    result = _train(learner, config)
    report = _report(algo, config, result)
    (folder / "result.json").write_text(json.dumps(asdict(report), indent=2) + "\n")
    _plot(report, folder / "curve.png")
    console.print(_table(report))
    console.print(f"Learning curve and numbers: {folder}", soft_wrap=True)
    if not report.reached:
        console.print(f"[red]The mean return of {report.target:g} was not reached.[/red]")
        raise typer.Exit(1)


def _refuse(message: str) -> NoReturn:
    typer.echo(f"relive demo: {message}", err=True)
    raise typer.Exit(2)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _prepare(algo: Algorithm, env: str, steps: int | None, seed: int, device: str) -> tuple[Any, Any]:
    """The learner's module and its configuration; whatever is wrong with the call is refused here, before training."""
    if find_spec("matplotlib") is None:
        _refuse("matplotlib is missing, expected it for the learning curve; pip install 'relive[demo]'")
    import gymnasium as gym
    import torch

    if not hasattr(gym.vector, "AutoresetMode"):
        _refuse(f"Gymnasium is {gym.__version__}, expected 1.1 or newer; pip install 'relive[demo]'")
    from relive.examples import dqn, ppo

    learner = dqn if algo is Algorithm.dqn else ppo
    options: dict[str, Any] = {"env_id": env, "seed": seed, "device": device}
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        _refuse(f"device is {device!r}, which torch cannot use here: {_first_line(error)}")
    try:
        config = learner.Config(**options) if steps is None else learner.Config(total_steps=steps, **options)
        dqn.make_env(env).close()
    except (ValueError, gym.error.Error, ImportError) as error:
        _refuse(_first_line(error))
    return learner, config


def _make_folder(folder: Path) -> Path:
    """The run folder, made before training, so that no run is lost for want of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _refuse(f"the run folder {folder} cannot be made: {error.strerror}")
    return folder


def _train(learner: Any, config: Any) -> Any:
    """Runs the learner under a progress bar."""
    columns = (
        TextColumn("{task.completed:,} of {task.total:,} steps"),
        BarColumn(),
        TextColumn("mean return {task.fields[mean_return]}, loss {task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("train", total=config.total_steps, mean_return="–", loss="–")

        def show(progress: Any) -> None:
            shown = "–" if progress.mean_return is None else f"{progress.mean_return:.1f}"
            loss = "–" if progress.loss is None else f"{progress.loss:.4f}"
            bar.update(task, completed=progress.env_steps, mean_return=shown, loss=loss)

        return learner.train(config, show)


def _report(algo: Algorithm, config: Any, result: Any) -> Report:
    from relive.examples.dqn import SOLVED_AT

    return Report(
        algorithm=algo.value,
        env_id=config.env_id,
        seed=config.seed,
        mean_return=result.mean_return,
        target=SOLVED_AT.get(config.env_id),
        env_steps=result.env_steps,
        seconds=result.seconds,
        env_steps_per_second=result.env_steps_per_second,
        draws=result.draws,
        draws_per_second_inside=result.draws_per_second_inside,
        draws_per_second_overall=result.draws_per_second_overall,
        buffer_bytes=result.buffer.nbytes.touched,
        sb3_bytes=_sb3_bytes(result.buffer),
        curve=result.curve,
    )


def _sb3_bytes(buffer: Any) -> int:
    """What the steps of ``buffer`` take in Stable-Baselines3's arrays."""
    import relive

    observation, action = buffer.observations[0, 0].nbytes, buffer.actions[0, 0].nbytes
    if isinstance(buffer, relive.ReplayBuffer):
        # Every observation twice; reward, done and timeout in float32.
        return len(buffer) * int(2 * observation + action + 3 * 4)
    # No next observations; reward, return, episode start, value, log-prob and advantage in float32.
    return len(buffer) * int(observation + action + 6 * 4)


def _plot(report: Report, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*report.curve, strict=True), marker="o", markersize=3)
    if report.target is not None:
        axes.axhline(report.target, linestyle="--", linewidth=1, color="gray", label=f"solved at {report.target:g}")
        axes.legend()
    axes.set(xlabel="environment steps", ylabel="mean evaluation return")
    axes.set_title(f"{report.algorithm.upper()} on {report.env_id}, seed {report.seed}")
    figure.savefig(path, dpi=150)


def _table(report: Report) -> Table:
    target = "" if report.target is None else f" (target {report.target:g})"
    copies = "two copies" if report.algorithm == Algorithm.dqn.value else "one copy too"
    share = report.buffer_bytes / report.sb3_bytes
    rows = {
        "mean evaluation return": f"{report.mean_return:.1f}{target}",
        "environment steps": f"{report.env_steps:,}",
        "environment steps per second": f"{report.env_steps_per_second:,.0f}",
        "draws": f"{report.draws:,}",
        "draws per second, whole run": f"{report.draws_per_second_overall:,.0f}",
        "draws per second, inside the buffer": f"{report.draws_per_second_inside:,.0f}",
        "bytes held": f"{report.buffer_bytes:,}",
        f"bytes in Stable-Baselines3, {copies}": f"{report.sb3_bytes:,} (relive: {share:.0%} of it)",
        "seconds": f"{report.seconds:.1f}",
    }
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return table
