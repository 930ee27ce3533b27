"""Puts a run's epochs into its folder, tells callbacks of them, and sums up what came out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sbtrpo.envs.faults import alarm
from sbtrpo.learning.callbacks import Callback, Run
from sbtrpo.runs.checkpoint import CheckpointStore
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.judgement import CUT_SHORT, merit, misleading

if TYPE_CHECKING:
    from sbtrpo.learning.trainer import Epoch, Trainer


def checkpoints_of(folder: RunFolder) -> CheckpointStore:
    """A run's checkpoints."""
    return CheckpointStore(folder.checkpoints, folder.config.keep_last, folder.config.keep_every, folder.hold)


def _nobody_watches(line: str) -> None:
    pass


class Recorder:
    """Puts a run's epochs into its folder, and what came out.

    Args:
        trainer: whose epochs they are.
        folder: of the run.
        callbacks: told what happens, beside those that the settings switch on.
        say: shows a line to whoever watches.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        callbacks: Iterable[Callback] = (),
        say: Callable[[str], None] = _nobody_watches,
    ) -> None:
        self.trainer, self.folder, self._store = trainer, folder, checkpoints_of(folder)
        folder.note_engine(trainer.config.engine, trainer.epoch)
        self._row: dict[str, float] = {}
        self._saved = trainer.epoch
        self.run = Run(trainer, folder, callbacks, say)
        trainer.tell = self.run.tell
        try:
            self.run.tell("on_start")
        except BaseException:
            folder.undo()
            raise

    @property
    def over(self) -> bool:
        """Whether the run is at its end, or is to stop here."""
        return self.trainer.epoch >= self.folder.config.epochs or bool(self.run.stopped)

    def record(self, epoch: Epoch) -> None:
        """Log an epoch, and save the state if it is time."""
        try:
            self.folder.log_epoch(epoch.row, epoch.episodes, epoch.timing)
        except ValueError:  # the run that is to go on has other columns, as its callbacks were others
            if self._saved and not self._row:
                self.folder.undo()
            raise
        self._row = epoch.row
        self.run.tell("on_epoch_end", epoch)
        if self.trainer.epoch % self.folder.config.checkpoint_every == 0:
            self._save()

    def _save(self) -> None:
        done = self.trainer.epoch
        self.folder.flush_episodes()
        score = merit(self._row["safety_probability"], self._row["safe_reward"])
        self._store.save(done, {**self.trainer.state_dict(), "tables": self.folder.digests()}, score)
        self.folder.note_checkpoint()
        self._saved = done

    def warnings(self) -> list[str]:
        """What a reader of the last epoch's numbers should know."""
        metrics = [self._row.get(name, math.nan) for name in ("reward", "safety_probability", "safe_reward")]
        cut_short = CUT_SHORT if self.trainer.config.end_at_violation else ""
        return list(filter(None, [misleading(*metrics), cut_short]))

    def alarm(self) -> str:
        """What to say of the run's faulted episodes; empty where they are few."""
        metrics = self.folder.metrics()
        faulted = metrics.get("faulted_episodes")
        return "" if faulted is None else alarm(faulted.sum(), metrics["episodes"].sum(), self.folder.config.faulted)

    def close(self) -> str:
        """End the session, with all epochs saved, and, where the run is over, its summary; returns how it ended."""
        done, planned, over = self.trainer.epoch, self.folder.config.epochs, self.over
        if self._saved < done:
            self._save()
        else:
            self._store.prune()  # a kill may have come in the midst of that
        if over:
            row = self._row or {name: float(values[-1]) for name, values in self.folder.metrics().items()}
            early = {"stopped": self.run.stopped} if done < planned else {}
            self.folder.finish({"epochs": done, "faults": self.trainer.faults, **early, "final": row})
        else:
            self.folder.close()
        self.run.tell("on_stop")
        if not over:
            return f"stopped after epoch {done}"
        return f"ended after epoch {done} of {planned}: {self.run.stopped}" if done < planned else ""
