"""How long a run is: what to say of one that is at its end, and how it is made longer."""

from __future__ import annotations

from sbtrpo.errors import UserError
from sbtrpo.runs.folder import RunFolder


def how_to_go_on(folder: RunFolder) -> str:
    """What to say of a run that is finished."""
    config, done = folder.config, folder.last_epoch
    steps = done * config.steps_per_epoch
    more, ended = 2 * steps, f"all its {done:,} epochs, {steps:,} steps, are done"
    if folder.stopped:
        more, ended = config.total_steps, f"it ended after epoch {done:,} of {config.epochs:,}: {folder.stopped}"
    return f"{folder.path} is finished: {ended}; to go on, sbtrpo resume {folder.path} --total-steps {more}"


def lengthen(folder: RunFolder, total_steps: int) -> list[str]:
    """Give a run another length, and tell what becomes of all that goes by it."""
    before, done = folder.config, folder.last_epoch
    after = before.replace(total_steps=total_steps)
    if after.epochs <= done:
        raise UserError(
            f"{folder.path} has {done * before.steps_per_epoch:,} steps already; name more than that with --total-steps"
        )
    folder.change(total_steps=total_steps)
    if after.epochs == before.epochs:
        return []
    then, now = (config.method.scheduled(done / config.epochs) for config in (before, after))
    own = f"; what {before.label} makes of the share of the run that is over follows the new length"
    return [
        f"the run now has {after.epochs:,} epochs in place of {before.epochs:,}"
        + "".join(f"; {name} goes on at {now[name]:.4g}, where it was {then[name]:.4g}" for name in now)
        + (own if ":" in before.algo else "")
    ]
