"""A policy's file with its card: what it is, what it is worth on fresh episodes, and the commands that lead to both.

The card is a TOML file beside the policy's. It names nothing of the machine: files that were given by an absolute path
are called by their names.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sbtrpo.config import TrainConfig
from sbtrpo.config.file import toml_lines
from sbtrpo.config.run import RunSettings, Which
from sbtrpo.config.settings import declared
from sbtrpo.config.tasks import is_foreign
from sbtrpo.config.toml import read_toml
from sbtrpo.files import check_writable, write_atomically
from sbtrpo.runs.evaluation import Evaluation, subject
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.intervals import mean_interval
from sbtrpo.runs.policy_file import NETWORK, SUFFIX, StoredPolicy, stored_policy
from sbtrpo.runs.provenance import provenance

EPISODES, SEED = 1000, 7
"""Of the evaluation on a card."""


def export_policy(
    run: str | Path,
    out: str | Path | None = None,
    which: Which = "last",
    episodes: int = EPISODES,
    seed: int = SEED,
    engine: str = "cpu",
) -> tuple[Path, Path]:
    """Write a run's policy as a file, and its card beside it; returns both paths.

    Args:
        run: the run's folder.
        out: the file's name, with or without its ending; by default `policy.safetensors` in the run's folder.
        which: the last checkpoint, the best one, or that of a given epoch.
        episodes: of the evaluation on the card.
        seed: of that evaluation; take one that training did not use.
        engine: what simulates its worlds.

    >>> import tempfile
    >>> from sbtrpo import train
    >>> config = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=200)
    >>> file, card = export_policy(train(config, out=tempfile.mkdtemp(), quiet=True), episodes=10)
    >>> file.name, card.name
    ('policy.safetensors', 'policy.toml')
    """
    folder = RunFolder.open(run)
    target = Path(out) if out is not None else folder.path / "policy"
    stem = target.name.removesuffix(SUFFIX)
    file, card = target.with_name(f"{stem}{SUFFIX}"), target.with_name(f"{stem}.toml")
    check_writable(file)
    stored = stored_policy(run, which)
    result = subject(run, stored.epoch).evaluate(episodes, seed, engine=engine)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, stored.content, alone=False)
    write_atomically(card, _card(stored, folder, result, file).encode(), alone=False)
    return file, card


def _card(stored: StoredPolicy, folder: RunFolder, result: Evaluation, file: Path) -> str:
    """What a card says."""
    whose = {name: stored.settings[name] for name in ("task", "algo", "seed")}
    what = {
        "file": file.name,
        "sha256": hashlib.sha256(stored.content).hexdigest(),
        **whose,
        "epoch": stored.epoch,
        "steps": stored.steps,
        "engine": folder.engine,
        **{name: version for name, version in provenance().items() if name in ("sbtrpo_version", "mujoco_version")},
    }
    lines = ["# A policy: what it is, what it is worth on fresh episodes, and the commands that lead to both.", ""]
    lines += toml_lines(what)
    settings = {name: value for name, value in stored.settings.items() if name not in whose}
    commands = _commands(stored, folder, result, file)
    for name, table in {"evaluation": _numbers(result), "commands": commands, "settings": settings}.items():
        lines += ["", f"[{name}]", *toml_lines(table)]
    return "\n".join(lines) + "\n"


def _numbers(result: Evaluation) -> dict[str, Any]:
    """An evaluation, its means with 95 % intervals; the numbers of a constraint begin with its name."""
    numbers = result.as_dict()
    for name in ("task", "policy", "checkpoint", "constraints"):
        del numbers[name]
    counted = result.episodes - (result.faulted_episodes if result.faulted == "apart" else 0)
    for name in ("reward", "cost", "safe_reward"):
        numbers[f"{name}_interval"] = mean_interval(numbers[name], numbers[f"{name}_std"], counted)
    for name, alone in result.constraints.items():
        numbers |= {f"{name}_{measure}": value for measure, value in alone.items()}
    return dict(sorted(numbers.items()))  # a mean beside its interval


# ---- commands ------------------------------------------------------------------------------------------------------


def _commands(stored: StoredPolicy, folder: RunFolder, result: Evaluation, file: Path) -> dict[str, str]:
    config, policy, task = folder.config, _portable(str(file)), _given(folder, "task")
    there = [] if task == stored.settings["task"] and not is_foreign(task) else ["--task", task]
    network = {n: config.get(n) for n in NETWORK if config.get(n) != declared(RunSettings)[n].default}
    commands = {
        "train": _training(folder),
        "export": ["export", "RUN", "--format", "policy", "--which", str(stored.epoch), "--out", policy],
        "evaluate": ["evaluate", policy, *there, "--episodes", str(result.episodes), "--seed", str(result.seed)],
        "record": ["record", policy, *there],
        "begin": ["train", task, "--init-from", policy, *_flags(network)],
    }
    return {name: shlex.join(["sbtrpo", *words]) for name, words in commands.items()}


def _training(folder: RunFolder) -> list[str]:
    """What trains the run again: its seed, and what shapes its results and is not its method's default."""
    config = folder.config
    usual = TrainConfig(task=config.task, algo=config.algo, fidelity=config.fidelity).settings()
    changed = {n: v for n, v in config.settings().items() if n in config.in_effect() and v != usual[n]}
    named = {name: _given(folder, name) for name in ("task", "algo", "init_from", "init_which")}
    task = named.pop("task")
    flags = {**named, "fidelity": config.fidelity, "seed": config.seed, **(changed | named), "engine": folder.engine}
    left_out = {"fidelity": ("paper",), "init_from": ("",), "init_which": ("last",), "engine": ("", "cpu")}
    return ["train", task, *_flags({n: v for n, v in flags.items() if v not in left_out.get(n, ())})]


def _flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the command line takes them."""
    words: list[str] = []
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else [value])]
    return words


def _given(folder: RunFolder, name: str) -> str:
    """A setting as the run was given it: files by their names, and not as the folder's copies."""
    default = declared(RunSettings)[name].default
    return _portable(str(read_toml(folder.path / "config.toml").get(name, "" if default is None else default)))


def _portable(place: str) -> str:
    """A path as another machine may have it."""
    return Path(place).name if Path(place).is_absolute() else place
