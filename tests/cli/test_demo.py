"""`relive demo`: what it prints, writes and refuses. The learners run for a few hundred steps only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from relive.examples import dqn, ppo
from typer.testing import CliRunner, Result

from relive.cli import app

PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["demo", *arguments], env={"COLUMNS": "120"})


@pytest.mark.parametrize(("algo", "steps"), [("dqn", 1200), ("ppo", 1024)])
def test_a_run_leaves_a_curve_and_its_numbers(algo: str, steps: int, tmp_path: Path) -> None:
    done = run("--algo", algo, "--steps", str(steps), "--out", str(tmp_path / "run"))
    numbers = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(PNG)
    assert numbers["env_steps"] == steps
    assert numbers["algorithm"] == algo
    assert numbers["curve"][-1] == [steps, numbers["mean_return"]]
    for shown in ("mean evaluation return", "environment steps per second", "draws per second", "bytes in Stable"):
        assert shown in done.output
    assert done.exit_code == (0 if numbers["mean_return"] >= 475 else 1), "the target decides the exit status"


def test_replay_takes_less_than_two_copies(tmp_path: Path) -> None:
    run("--steps", "1200", "--out", str(tmp_path))
    numbers = json.loads((tmp_path / "result.json").read_text())
    assert numbers["sb3_bytes"] == 1200 * (4 * 4 * 2 + 8 + 3 * 4)
    assert numbers["buffer_bytes"] < numbers["sb3_bytes"]


def test_training_stops_at_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dqn.SOLVED_AT, "CartPole-v1", 5.0)
    done = run("--out", str(tmp_path))
    assert done.exit_code == 0
    assert json.loads((tmp_path / "result.json").read_text())["env_steps"] == dqn.Config.eval_every


def test_an_environment_without_a_target_trains_for_all_its_steps(tmp_path: Path) -> None:
    done = run("--env", "Acrobot-v1", "--algo", "ppo", "--steps", "1024", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "result.json").read_text())["target"] is None


@pytest.mark.parametrize("learner", [dqn, ppo], ids=["dqn", "ppo"])
def test_the_same_seed_gives_the_same_run(learner: type[dqn] | type[ppo]) -> None:
    config = learner.Config(total_steps=2048, seed=3, eval_every=1024, eval_episodes=4)
    first, second = learner.train(config), learner.train(config)
    assert first.curve == second.curve
    weights = zip(first.network.parameters(), second.network.parameters(), strict=True)
    assert all(a.equal(b) for a, b in weights)


def test_progress_is_told_on_the_way() -> None:
    told: list[dqn.Progress] = []
    dqn.train(dqn.Config(total_steps=1600, eval_every=800, eval_episodes=2), told.append)
    assert told[-1].env_steps == 1600
    assert told[-1].mean_return is not None
    assert told[0].mean_return is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "NoSuchEnv-v0"], "NoSuchEnv"),
        (["--env", "Pendulum-v1"], "action space Box"),
        (["--steps", "0"], "total_steps is 0"),
        (["--steps", "-5", "--algo", "ppo"], "total_steps is -5"),
        (["--env", "FrozenLake-v1", "--algo", "ppo"], "observation space Discrete"),
        (["--device", "warp"], "device is 'warp'"),
        (["--device", "meta"], "device is 'meta'"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run(*arguments, "--out", str(tmp_path / "run"))
    assert done.exit_code == 2
    assert message in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_run_folder_that_cannot_be_made_is_said_before_training(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = run("--out", str(tmp_path / "taken"))
    assert done.exit_code == 2
    assert "taken cannot be made" in done.output


def test_a_missing_matplotlib_is_said_before_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("relive.cli.demo.find_spec", lambda name: None)
    done = run("--out", str(tmp_path / "run"))
    assert done.exit_code == 2
    assert "pip install 'relive[demo]'" in done.output
    assert not (tmp_path / "run").exists()


def test_the_version_is_printed() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.output.startswith("relive 0.")
