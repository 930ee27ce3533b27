"""Runs in their folders: begun, resumed, and brought to their ends epoch by epoch (the loop itself: `trainer.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sbtrpo.config import TrainConfig
from sbtrpo.config.run import Engine, GrowBy
from sbtrpo.envs.faults import alarm
from sbtrpo.errors import UserError
from sbtrpo.learning.callbacks import Callback, check_callbacks
from sbtrpo.learning.display import Display
from sbtrpo.learning.identity import changed_settings, identities
from sbtrpo.learning.interrupts import interruptible
from sbtrpo.learning.length import check_length, how_to_go_on, of_another_length
from sbtrpo.learning.placement import keeping_torch
from sbtrpo.learning.recorder import Recorder, checkpoints_of
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs.checkpoint import check_form, fitting
from sbtrpo.runs.folder import METHOD_FILE, START_FILE, TASK_FILE, RunFolder, default_path


@keeping_torch()
def train(
    config: TrainConfig,
    out: str | Path | None = None,
    quiet: bool = False,
    wandb: bool = False,
    callbacks: Callback | Iterable[Callback] = (),
    init_from: str | Path | None = None,
) -> Path:
    """Train a policy; returns the run's folder.

    Args:
        config: the settings.
        out: the run's folder, new or empty; `runs/<task>/<algo>/seed<k>-<hash>` if left out.
        quiet: show nothing.
        wandb: also log to Weights & Biases.
        callbacks: an object of `sbtrpo.Callback`, or several, told what happens; they may stop the run.
        init_from: begin with the policy of this run's folder or file, as the setting of that name does.

    >>> import tempfile
    >>> config = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=400)
    >>> run = train(config, out=tempfile.mkdtemp(), quiet=True)
    >>> sorted(path.name for path in run.iterdir())[:4]
    ['checkpoints', 'config.toml', 'curves.png', 'episodes.parquet']
    """
    if init_from is not None:
        config = config.replace(init_from=str(init_from))
    path = Path(out) if out is not None else default_path(config)
    listening, trainer = check_callbacks(callbacks), Trainer(config)
    start = None if trainer.start is None else trainer.start.content
    with RunFolder.create(path, config, wandb=wandb, start=start) as folder:
        return _run(trainer, folder, quiet, listening, filter(None, [trainer.beginning]))


@keeping_torch()
def resume(
    run: str | Path,
    quiet: bool = False,
    wandb: bool = False,
    engine: Engine | None = None,
    total_steps: int | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    grow_by: GrowBy | None = None,
    device: str | None = None,
) -> Path:
    """Continue a run from its newest intact checkpoint, as if it had never stopped.

    Args:
        run: the run's folder.
        quiet: show nothing.
        wandb: also log to Weights & Biases.
        engine: what simulates the worlds from now on; numbers then differ by rounding, which grows.
        total_steps: a new length of the run, finished or not. What a method lets fall or grow over a run follows the
            new length from here on, and not from the beginning.
        callbacks: as those of `train`; they are not kept with the run.
        grow_by: "worlds": from now on longer epochs have more worlds, and those that there are go on.
        device: where the learner is from now on, cpu or cuda, and with `engine="auto"` the worlds, too; numbers then
            differ by rounding. A run with `device="cuda"` goes on where there is no GPU by "cpu".
    """
    listening = check_callbacks(callbacks)
    with RunFolder.open(run, wandb=wandb) as folder:
        changes: dict[str, Any] = {} if total_steps is None else {"total_steps": total_steps}
        if engine not in (None, folder.config.engine):
            changes |= {"engine": engine, "device": "auto"}
        if device not in (None, changes.get("device", folder.config.device)):
            changes["device"] = device
        if grow_by is not None and not folder.config.epoch_growth:
            raise UserError(f"epochs of {folder.path} are all alike; leave grow_by out")
        if grow_by not in (None, folder.config.grow_by) and (total_steps or not folder.is_finished):
            changes["grow_by"] = grow_by
        trainer, notes = restore(folder, **changes)
        return _run(trainer, folder, quiet, listening, notes)


def restore(folder: RunFolder, **changes: Any) -> tuple[Trainer, list[str]]:
    """A trainer that continues the folder's run, and notes on where it goes on; the folder forgets what came after.

    Where a run cannot be continued with these changes of its settings, that is refused before anything is written.
    """
    folder.hold()
    before, config = folder.config, folder.config.replace(**changes)
    store, logged = checkpoints_of(folder), folder.last_epoch
    # A kill may come after the row of the epoch that the first checkpoint is due at.
    late = logged > folder.config.checkpoint_every
    if not store.epochs() and (late or folder.had_checkpoint or folder.is_summed_up):
        raise UserError(
            f"{folder.path} has {logged} epochs in metrics.csv and no checkpoint to go on from; bring its checkpoints"
            " back, or train anew in another folder"
        )
    if not store.epochs():  # the run was stopped before its first
        trainer, notes, digests = Trainer(config, folder.engine), list[str](), None
    else:
        _, state, notes = store.load_latest()
        with fitting(folder.path):
            trainer, digests = _trainer_from(state, folder, config), state.get("tables")
    if "total_steps" in changes:
        check_length(folder, config, trainer.epoch)
    missing = folder.rewind(trainer.epoch, digests)
    if changes:
        folder.change(**changes)
    going_on = how_to_go_on(folder) if folder.is_finished else f"resuming after epoch {trainer.epoch}"
    return trainer, [*notes, *missing, going_on, *of_another_length(before, config, trainer.epoch)]


def _trainer_from(state: Mapping[str, Any], folder: RunFolder, config: TrainConfig) -> Trainer:
    """A trainer in the state of a checkpoint; refuses where the run's settings have been edited since."""
    if changed := changed_settings(state["config"], folder.config):
        raise UserError(
            f"{folder.path / 'config.toml'} was edited since the run's checkpoint: {', '.join(changed)}; put that back,"
            " or train anew in another folder"
        )
    now = identities(folder.config)
    for name, file in (("task", TASK_FILE), ("algo", METHOD_FILE), ("init_from", START_FILE)):
        if state.get("identities", now).get(name) != now.get(name):  # earlier versions did not keep them
            raise UserError(
                f"{folder.path / file} was edited since the run's checkpoint; put it back, or train anew in another"
                " folder"
            )
    trainer = Trainer(config, folder.engine)
    form = trainer.state_dict()
    for part in ("policy", "critics", "orders", "epoch", "skipped", "skipped_in_a_row", "faults"):
        check_form(state[part], form[part], part)
    trainer.load_state_dict(state)
    return trainer


def _run(
    trainer: Trainer, folder: RunFolder, quiet: bool, callbacks: Iterable[Callback], notes: Iterable[str] = ()
) -> Path:
    """Epoch after epoch to the end, to Ctrl-C, or to a state in which it makes no sense to go on."""
    config = folder.config
    title = f"{config.label} on {config.task_entry.label}, seed {config.seed}"
    warned, pool = False, trainer.collector.pool
    with Display(config, title, quiet) as display, interruptible(pool) as interrupted:
        for note in [trainer.placement.sentence(), *config.notes(), *getattr(pool, "notes", ()), *notes]:
            display.say(note)
        recorder = Recorder(trainer, folder, callbacks, display.say)
        while not recorder.over and not interrupted.is_set():
            epoch = trainer.run_epoch()
            recorder.record(epoch)
            display.update(epoch.row, epoch.timing)
            counts, place = (epoch.row["faulted_episodes"], epoch.row["episodes"]), f" of epoch {trainer.epoch}"
            if not warned and (sentence := alarm(*counts, config.faulted, place)):
                display.warn(sentence)
                warned = True
            trainer.check()
        if sentence := recorder.alarm():
            display.warn(sentence)
        for warning in recorder.warnings():
            display.say(warning)
        if ending := recorder.close():
            display.say(ending + ("" if folder.is_finished else f"; continue with: sbtrpo resume {folder.path}"))
    return folder.path
