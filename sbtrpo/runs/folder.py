"""A run's folder: its settings, a row for each epoch, a row for each episode, and what came out.

config.toml       every setting; the run can be repeated from it
task.toml         the task, where it came from a file: the run goes on with this copy
method.py         likewise the method
start.safetensors likewise the policy, where the run begins with one
run.json          when, where and with which versions the run began
metrics.csv       one row an epoch; the same run gives the same bytes, so no time stands in it
timing.csv        one row an epoch: where the time went
evaluations.csv   one row an evaluation on fresh worlds, where the settings ask for them
episodes.parquet  one row an episode: a folder of Parquet parts, to be read as one table (see `sbtrpo.runs.tables`)
tensorboard/      all numbers of both tables, for TensorBoard
checkpoints/      see `sbtrpo.runs.checkpoint`
summary.json      the result, with versions, host and duration
curves.png        the course of the run
claim-*.json      who writes to the folder, while someone does (see `sbtrpo.runs.claims`)
"""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sbtrpo.config import TrainConfig
from sbtrpo.config.file import edit_config, read_config, write_config
from sbtrpo.config.run import Which
from sbtrpo.config.tasks import is_task_file
from sbtrpo.errors import UserError
from sbtrpo.files import naming, remove, write_atomically
from sbtrpo.runs.claims import CLAIMS, Claim
from sbtrpo.runs.curves import curves_png
from sbtrpo.runs.provenance import now, provenance
from sbtrpo.runs.tables import Episodes, Table

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

TASK_FILE, METHOD_FILE, START_FILE = "task.toml", "method.py", "start.safetensors"
EPISODES = "episodes.parquet"
EVALUATIONS = "evaluations.csv"
_FIRST = ("config.toml", TASK_FILE, METHOD_FILE, START_FILE, "run.json", "summary.json", "wandb")
"""What is written before a session's first epoch."""
_NO_FOLDER = re.compile(r"[. ]*|(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""What no folder is called, here or on Windows."""


def default_path(config: TrainConfig, root: str | Path = "runs") -> Path:
    """Where a run goes unless told otherwise.

    >>> default_path(TrainConfig(seed=3)).as_posix()[:-8]
    'runs/SafetyPointGoal2-v0/sb-trpo/seed3-'
    """
    task = re.sub(r"[&%]", "-", config.task_entry.label)
    return Path(root) / folder_name(task) / config.label / f"seed{config.seed}-{config.digest()}"


def folder_name(name: str) -> str:
    """A name as a folder below another one, which it cannot leave; slashes make folders within it.

    >>> folder_name("package:Env-v0"), folder_name("/a/../con.x")
    ('package-Env-v0', '-/a/-/-con.x')
    """
    parts = (re.sub(r'[\x00-\x1f\x7f\\<>:"|?*]', "-", part)[:200] for part in name.split("/"))
    return "/".join(f"-{part.strip('. ')}" if _NO_FOLDER.fullmatch(part) else part for part in parts)


def method_file(config: TrainConfig) -> Path | None:
    """The file that holds the run's method; None where the method has a name or lies in a module."""
    place, _, _ = config.algo.rpartition(":")
    return Path(place) if place.endswith(".py") else None


def read_run(path: Path) -> TrainConfig:
    """The settings in a run's folder; a method, task or policy that came from a file is the folder's copy of it.

    A folder without run.json is no run's: somebody wrote its settings, and what is left out has its default.
    """
    copies = (path / copy if (path / copy).exists() else None for copy in (METHOD_FILE, TASK_FILE, START_FILE))
    return read_config(path / "config.toml", *copies, whole=(path / "run.json").exists())


class RunFolder:
    """The files of one run; made by `create` or `open`, and a context manager that closes them.

    Whoever writes holds the folder, from the first write or an earlier `hold` until `close`, and no other process can
    write meanwhile. Reading needs nothing and changes nothing.

    For a run that can be resumed at any moment, an epoch ends with `log_epoch`, `flush_episodes`, then the checkpoint;
    a resumed run begins with `hold`, then `rewind` to the checkpoint's epoch.
    """

    def __init__(self, path: str | Path, config: TrainConfig) -> None:
        self.path = Path(path)
        self.config = config
        self._claim: Claim | None = None
        # As it was when the folder was held first: which folders were not there, the innermost first, and its files.
        self._missing, self._before = list[Path](), dict[Path, bytes | None]()
        self._metrics = Table(self.path / "metrics.csv", self.hold)
        self._timing = Table(self.path / "timing.csv", self.hold, "delete it and go on without its times")
        self._episodes = Episodes(self.path / EPISODES, self.hold)
        self._evaluations = Table(self.path / EVALUATIONS, self.hold, "delete it and go on without its evaluations")
        self._tables = (self._metrics, self._timing, self._episodes, self._evaluations)
        self._tensorboard: SummaryWriter | None = None
        self._elapsed_before = self._logged_seconds()
        self._begun = time.monotonic()
        self._wandb: Any = None

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: TrainConfig,
        resume: bool = False,
        wandb: bool = False,
        start: bytes | None = None,
    ) -> Self:
        """Make the folder of a new run; with `resume`, or go on in that of an earlier one with the same settings.

        A run may be resumed with more or fewer `total_steps`, and with other settings of where and how it runs. The
        policy that it begins with is `start`, or what the settings name.
        """
        folder = cls(path, config)
        path = folder.path
        with ExitStack() as failing:
            failing.callback(folder.close)
            folder.hold()
            before = read_run(path) if (path / "config.toml").exists() else config
            if before.grow_by == "worlds":  # as it may go on since, whatever it began with
                config = folder.config = config.replace(grow_by="worlds")
            _check_same_run(path, before, config)
            if not resume and any(not file.match(CLAIMS) for file in path.iterdir()):
                instead = "resume that run, or " * (path / "config.toml").exists()
                raise FileExistsError(f"{path} exists and is not empty; {instead}choose another --out")
            failing.callback(folder.undo)
            if is_task_file(config.task) and not (path / TASK_FILE).exists():
                write_atomically(path / TASK_FILE, Path(config.task).read_bytes())
            source = method_file(config)
            if source is not None and not (path / METHOD_FILE).exists():
                write_atomically(path / METHOD_FILE, source.read_bytes())
            if config.init_from is not None and not (path / START_FILE).exists():
                write_atomically(path / START_FILE, start or _start(config.init_from, config.init_which))
            write_config(path / "config.toml", config)
            folder._origin()
            if before.total_steps != config.total_steps:
                folder._note_length(before)
            if wandb:
                folder._begin_wandb()
            failing.pop_all()
        return folder

    @classmethod
    def open(cls, path: str | Path, wandb: bool = False) -> Self:
        """The folder of an earlier run."""
        path = Path(path)
        if not (path / "config.toml").exists():
            raise FileNotFoundError(f"{path} is not the folder of a run: it holds no config.toml")
        folder = cls(path, read_run(path))
        if wandb:
            with ExitStack() as failing:
                failing.callback(folder.close)
                folder._begin_wandb()
                failing.pop_all()
        return folder

    def hold(self) -> None:
        """Be the only process that writes here, until `close`; raises `Busy` or `Lost` where another one is."""
        if self._claim is not None:
            self._claim.check()
            return
        self._missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self._claim = Claim(self.path).take()
        files = (self.path / name for name in _FIRST)
        self._before = {file: file.read_bytes() if file.exists() else None for file in files if not file.is_dir()}

    def undo(self) -> None:
        """Take back what was written before the first epoch since the folder is held, and close it.

        A run that is refused leaves nothing behind, and one that was there before is as it was, but for what `rewind`
        forgets, which comes again. The settings go last: what a kill leaves can be resumed.
        """
        self.hold()
        self._close_viewers()  # they write as they end
        for file, content in reversed(self._before.items()):
            if content is None:
                remove(file)
            else:
                write_atomically(file, content, guard=self.hold)
        self.close()
        with suppress(OSError):  # others, or a callback, may have put something there
            for folder in self._missing:
                folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def checkpoints(self) -> Path:
        """The folder for a `CheckpointStore`."""
        return self.path / "checkpoints"

    def log_epoch(
        self,
        row: Mapping[str, float],
        episodes: Mapping[str, NDArray[Any]] | None = None,
        timing: Mapping[str, float] | None = None,
    ) -> None:
        """Note an epoch; metrics.csv is on the disk when this returns.

        Args:
            row: what goes to metrics.csv, the same keys in every epoch; `epoch`, from 1, is one of them, and `steps`,
                if there, is the horizontal axis of TensorBoard and of the curves.
            episodes: those finished in this epoch, (E,) arrays: world, step, return, cost, length, goals, ...
            timing: seconds and rates of this epoch, for timing.csv.
        """
        if "epoch" not in row:
            raise ValueError(f"a row needs its epoch, got the keys {list(row)}")
        epoch = int(row["epoch"])
        timing = {**(timing or {}), "elapsed_seconds": self.elapsed_seconds}
        self._metrics.append(row)
        self._timing.append({"epoch": epoch, **timing})
        self._episodes.add(epoch, episodes or {})
        self._log_to_viewers(row, timing)

    def log_evaluation(self, row: Mapping[str, float]) -> None:
        """Note an evaluation of the policy that the last epoch led to; `epoch` and `steps` are among its keys."""
        self._evaluations.append(row)
        names = {key: value for key, value in row.items() if key not in ("epoch", "steps")}
        self._show({f"evaluation/{key}": value for key, value in names.items()}, int(row["steps"]))

    def flush_episodes(self) -> None:
        """Bring episodes.parquet up to date."""
        self._episodes.flush()

    def digests(self) -> dict[str, str]:
        """What the tables hold, as SHA-256 digests by their names; a checkpoint keeps them for `rewind`."""
        return {table.path.name: table.digest() for table in self._tables}

    def rewind(self, epoch: int, digests: Mapping[str, str] | None = None) -> list[str]:
        """Forget what was logged after `epoch`, so that a resumed run goes on as if it had not been interrupted.

        Before anything is changed, every table is read, and its rows are compared with the digests of that epoch.
        Returns a sentence on each file that the run goes on without.
        """
        self.hold()
        origin = self.path / "run.json"
        missing = [] if origin.exists() else [f"{origin} is missing: when and where the run began is lost"]
        self._origin()
        missing += [table.check(epoch, (digests or {}).get(table.path.name)) for table in self._tables]
        last = min(self._metrics.last_epoch, epoch)
        if last != epoch:
            raise ValueError(
                f"{self._metrics.path} ends with epoch {last} but the run is to go on after epoch {epoch};"
                " rows are missing, so it cannot be resumed there"
            )
        for table in self._tables:
            table.rewind(epoch)
        self._elapsed_before, self._begun = self._logged_seconds(), time.monotonic()
        return list(filter(None, missing))

    @property
    def elapsed_seconds(self) -> float:
        """Seconds that the run took so far; of a killed session, those until its last logged epoch."""
        return self._elapsed_before + time.monotonic() - self._begun

    def finish(self, summary: Mapping[str, Any]) -> Path:
        """Write summary.json, curves.png and the last episodes, and close everything; returns the summary's path."""
        self.flush_episodes()
        content = {
            **summary,
            **({"lengths": self.lengths} if self.lengths else {}),
            **provenance(),
            "started": self._origin()["started"],
            "finished": now(),
            "duration_seconds": round(self.elapsed_seconds, 3),
            "sha256": {**self.digests(), **self._episodes.part_digests()},
        }
        write_atomically(self.path / "summary.json", _strict_json(content), guard=self.hold)
        self.draw_curves()
        self.close()
        return self.path / "summary.json"

    def close(self) -> None:
        """Close the viewers' files, as all others are never left open, and let others write here."""
        claim, self._claim = self._claim, None
        with ExitStack() as closing:
            if claim is not None:
                closing.callback(claim.release)  # the last, whatever happens before
            self._close_viewers()

    def _close_viewers(self) -> None:
        tensorboard, wandb = self._tensorboard, self._wandb
        self._tensorboard = self._wandb = None
        with ExitStack() as closing, naming(self.path / "tensorboard"):
            if wandb is not None:
                closing.callback(wandb.finish)
            if tensorboard is not None:
                tensorboard.close()

    @property
    def last_epoch(self) -> int:
        """The last epoch in metrics.csv; 0 without one."""
        return self._metrics.last_epoch

    @property
    def is_finished(self) -> bool:
        """Whether metrics.csv holds all epochs of the run, or it was to end before."""
        return self.last_epoch >= self.config.epochs or bool(self.stopped)

    @property
    def stopped(self) -> str:
        """Why the run ended before its last epoch; empty where it did not."""
        summary = self._summary()
        return str(summary.get("stopped", "")) if summary.get("epochs") == self.last_epoch else ""

    @property
    def is_summed_up(self) -> bool:
        """Whether the run came to an end after some epoch, even if it may be made longer."""
        return (self.path / "summary.json").exists() and self._summary().get("epochs") != 0

    def metrics(self) -> dict[str, NDArray[np.float64]]:
        """The columns of metrics.csv."""
        return self._metrics.columns()

    def evaluations(self) -> dict[str, NDArray[np.float64]]:
        """The columns of evaluations.csv; empty before the first evaluation."""
        return self._evaluations.columns()

    def episodes(self) -> dict[str, NDArray[Any]]:
        """The columns of episodes.parquet, with episodes that are not yet written."""
        return self._episodes.columns()

    def draw_curves(self) -> Path:
        """Draw curves.png from metrics.csv."""
        c = self.config
        betas = [str(beta) for beta in (c.get("beta"), c.get("beta_end")) if beta is not None]
        bias = f", β = {' to '.join(betas)}" if betas else ""
        title = f"{c.task_entry.label}, {c.label}{bias}, advantage {c.method.advantage}, seed {c.seed}"
        write_atomically(self.path / "curves.png", curves_png(self.metrics(), title, self.evaluations()))
        return self.path / "curves.png"

    def _begin_wandb(self) -> None:
        """Begin a Weights & Biases run, the same when resumed; the user's WANDB_MODE says whether it goes online."""
        self.hold()
        try:
            import wandb
        except ImportError as error:
            raise ImportError(
                "Weights & Biases is not installed; run `pip install 'sbtrpo[wandb]'` or leave out --wandb"
            ) from error
        self._wandb = wandb.init(
            project="sbtrpo",
            id=self._origin()["id"],
            resume="allow",
            dir=str(self.path),
            name=f"{self.config.task_entry.label} {self.config.label} seed {self.config.seed}",
            config=self.config.settings(),
        )

    def _log_to_viewers(self, row: Mapping[str, float], timing: Mapping[str, float]) -> None:
        step = int(row.get("steps", row["epoch"]))
        numbers = {f"train/{key}": value for key, value in row.items()}
        self._show(numbers | {f"time/{key}": value for key, value in timing.items()}, step)

    def _show(self, numbers: Mapping[str, float], step: int) -> None:
        """Let the viewers have these numbers."""
        self.hold()
        with naming(self.path / "tensorboard"):
            if self._tensorboard is None:
                self._tensorboard = _tensorboard(self.path / "tensorboard", step)
            for name, value in numbers.items():
                self._tensorboard.add_scalar(name, float(value), step)
            self._tensorboard.flush()
        if self._wandb is not None:
            self._wandb.log(dict(numbers), step=step)

    def _logged_seconds(self) -> float:
        elapsed = self._timing.columns().get("elapsed_seconds")
        return 0.0 if elapsed is None or not len(elapsed) else float(elapsed[-1])

    @property
    def had_checkpoint(self) -> bool:
        """Whether the run has saved a checkpoint, wherever that is now; runs of earlier versions do not tell."""
        return (self.path / "run.json").exists() and bool(self._origin().get("saved"))

    def note_checkpoint(self) -> None:
        """Tell that the run has saved a checkpoint."""
        if not self.had_checkpoint:
            self.hold()
            write_atomically(self.path / "run.json", _strict_json({**self._origin(), "saved": True}))

    @property
    def engine(self) -> str:
        """The engine that the run was on last; empty where nobody has told."""
        engines = self._origin()["engines"] if (self.path / "run.json").exists() else []
        return engines[-1]["engine"] if engines else ""

    def note_engine(self, engine: str, epoch: int) -> None:
        """Tell which engine simulates the worlds from the end of this epoch on; numbers depend on it by rounding."""
        if engine != self.engine:
            self.hold()
            engines = [*(origin := self._origin())["engines"], {"engine": engine, "after_epoch": epoch}]
            write_atomically(self.path / "run.json", _strict_json({**origin, "engines": engines}))

    def change(self, **settings: Any) -> None:
        """Go on with other settings of where and how the run runs, or with another length."""
        self.hold()
        before, self.config = self.config, self.config.replace(**settings)
        goes_on = "total_steps" in settings and (self.config.total_steps != before.total_steps or bool(self.stopped))
        if goes_on or self.config.grow_by != before.grow_by:
            self._note_length(before, goes_on)
        edit_config(self.path / "config.toml", settings)

    def _note_length(self, before: TrainConfig, goes_on: bool = True) -> None:
        """Tell what the run was to be until now; where it goes on, that it had stopped early holds no more."""
        until = {"total_steps": before.total_steps, "grow_by": before.grow_by, "until_epoch": self.last_epoch}
        origin = self._origin()
        lengths = [*origin.get("lengths", []), until]
        write_atomically(self.path / "run.json", _strict_json({**origin, "lengths": lengths}), guard=self.hold)
        if self.stopped and goes_on:
            summary = {key: value for key, value in self._summary().items() if key != "stopped"}
            write_atomically(self.path / "summary.json", _strict_json(summary), guard=self.hold)

    @property
    def lengths(self) -> list[dict[str, int]]:
        """The lengths that the run was to have before the one that it has, each until an epoch."""
        known = self._origin().get("lengths", []) if (self.path / "run.json").exists() else []
        return [{"total_steps": int(one["total_steps"]), "until_epoch": int(one["until_epoch"])} for one in known]

    def _summary(self) -> dict[str, Any]:
        """What summary.json says; nothing where it says nothing."""
        try:
            content = json.loads((self.path / "summary.json").read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def _origin(self) -> dict[str, Any]:
        """What run.json says; written by the first session."""
        path = self.path / "run.json"
        if not path.exists():
            origin = {"id": uuid.uuid4().hex[:12], "started": now(), **provenance()}
            write_atomically(path, _strict_json(origin))
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
            engines = [{**entry, "engine": str(entry["engine"])} for entry in content.get("engines", [])]
            return {**content, "id": content["id"], "started": content["started"], "engines": engines}
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UserError(f"{path} is damaged ({error!r}); restore it from a copy, or delete it") from error


def _start(place: str, which: Which) -> bytes:
    from sbtrpo.runs.policy_file import stored_policy  # here: reading a run needs no torch

    return stored_policy(place, which).content


def _check_same_run(path: Path, old: TrainConfig, new: TrainConfig) -> None:
    if changed := new.differences(old):
        instead = "resume it with its own, or choose another --out"
        raise ValueError(f"{path} is a run with other settings: {', '.join(changed)}; {instead}")


# ---- viewers ---------------------------------------------------------------------------------------------------------


def _tensorboard(folder: Path, first_step: int) -> SummaryWriter:
    """A writer; events that an interrupted session left from `first_step` on are hidden."""
    from torch.utils.tensorboard import SummaryWriter  # here: reading a run needs neither torch nor TensorBoard

    resumed = folder.exists() and any(folder.iterdir())
    return SummaryWriter(str(folder), purge_step=first_step if resumed else None)


def _strict_json(content: Any) -> bytes:
    return (json.dumps(_plain(content), indent=2, allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    """What JSON can say: NumPy's numbers as Python's, and null for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
