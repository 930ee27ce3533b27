"""How long a run is: what to say of one that is at its end, and how it is made longer."""

from __future__ import annotations

from sbtrpo.config import TrainConfig
from sbtrpo.errors import UserError
from sbtrpo.runs.folder import RunFolder


def how_to_go_on(folder: RunFolder) -> str:
    """What to say of a run that is finished."""
    config, done = folder.config, folder.last_epoch
    steps = config.steps_after(done)
    all_its = f"all its {done:,} epochs, {steps:,} steps, are" if done > 1 else f"its only epoch, {steps:,} steps, is"
    more, ended = 2 * steps, f"{all_its} done"
    if folder.stopped:
        more, ended = config.total_steps, f"it ended after epoch {done:,} of {config.epochs:,}: {folder.stopped}"
    return f"{folder.path} is finished: {ended}; to go on, sbtrpo resume {folder.path} --total-steps {more}"


def check_length(folder: RunFolder, length: TrainConfig, done: int) -> None:
    """Refuse a length that the run has already, so many epochs in."""
    if length.epochs <= done:
        steps, next_end = (length.steps_after(epochs) for epochs in (done, done + 1))
        raise UserError(f"{folder.path} has {steps:,} steps already; name at least {next_end} with --total-steps")


def of_another_length(before: TrainConfig, after: TrainConfig, done: int) -> list[str]:
    """What becomes of all that goes by a run's length, so many epochs in."""
    if after.epochs == before.epochs:
        return []
    then, now = (config.method.scheduled(config.share_after(done)) for config in (before, after))
    hits, hits_now = (config.method.first_hits(config.share_after(done)) for config in (before, after))
    sums = "; costs are summed again, until as large a share of the new length is over"
    own = f"; what {before.label} makes of the share of the run that is over follows the new length"
    return [
        f"the run now has {after.epochs:,} epochs in place of {before.epochs:,}"
        + "".join(
            f"; {name} goes on at {_text(now[name])}, where it was {_text(then[name])}"
            for name in now
            if now[name] != then[name]
        )
        + (sums if hits and not hits_now else "")
        + (own if ":" in before.algo else "")
    ]


def _text(value: float | tuple[float, ...]) -> str:
    """A setting's value, or those for each constraint.

    >>> _text(0.25), _text((0.5, 0.75))
    ('0.25', '0.5, 0.75')
    """
    return ", ".join(f"{number:.4g}" for number in (value if isinstance(value, tuple) else (value,)))
