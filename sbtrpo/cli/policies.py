"""The commands that try a policy, a run's, an exported one, or anybody's, and the one that exports it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import Progress

from sbtrpo.cli.settings import checkpoint
from sbtrpo.cli.tables import evaluation_table, evaluations_table
from sbtrpo.files import check_writable, write_atomically

Policy = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="POLICY")]


def evaluate(
    policy: Policy,
    task: str | None = None,
    env_kwargs: tuple[str, ...] = (),
    episodes: int = 100,
    seed: int = 7,
    deterministic: bool = False,
    which: str = "last",
    faulted: Literal["unsafe", "apart"] | None = None,
    engine: Literal["auto", "cpu", "gpu", "gpu-on-cpu"] = "auto",
    env_timeout: float | None = None,
    json_only: Annotated[bool, tyro.conf.arg(name="json")] = False,
    out: Path | None = None,
    kept: bool = False,
) -> None:
    """Evaluate a policy on fresh layouts, with frozen observation statistics.

    Args:
        policy: a run's folder; an exported policy, .safetensors, .onnx or TorchScript (.pt), which runs the code in it;
            or a callable of your own, my_module:policy.
        task: where to try it; by default the run's task, or the one that an exported policy names.
        env_kwargs: keyword arguments of your own environment, name=value each.
        episodes: how many.
        seed: of the layouts and of the policy's noise; take one that training did not use.
        deterministic: act by the policy's mean instead of sampling.
        which: the checkpoint: last, best, or an epoch's number.
        faulted: what episodes count as that a fault has cut: unsafe, or apart from all rates; as in training if left
            out.
        engine: what simulates the worlds: cpu, gpu, or the faster one for so many episodes.
        env_timeout: seconds after which your own environment counts as hung; as in training if left out.
        json_only: print JSON alone; otherwise a table, and the JSON goes into a file.
        out: the name of that file; by default one of its own in the folder evaluations, in that of the run or beside
            the exported policy.
        kept: list the evaluations that are there, and evaluate nothing.
    """
    from sbtrpo.envs.faults import alarm
    from sbtrpo.runs import evaluation, evaluations
    from sbtrpo.runs.judgement import misleading

    console = Console()
    if kept:
        console.print(evaluations_table(evaluations.kept(evaluation.home_of(policy))))
        return
    if out is not None:
        check_writable(out)
    tried = evaluation.subject(policy, checkpoint(which), task, env_kwargs)
    result = tried.evaluate(episodes, seed, deterministic, faulted=faulted, engine=engine, env_timeout=env_timeout)
    if words := alarm(result.faulted_episodes, result.episodes, result.faulted):
        print(f"sbtrpo: {words}", file=sys.stderr)
    content = evaluations.as_json(result)
    if json_only:
        print(content.decode(), end="")
    else:
        console.print(evaluation_table(result))
        if words := misleading(result.reward, result.safety_probability, result.safe_reward):
            print(words)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, content, alone=False)
    elif not json_only:
        try:
            print(evaluations.keep(result, tried))
        except OSError as error:
            place = tried.home / evaluations.FOLDER
            print(f"sbtrpo: {place} is not written ({error.strerror}); name a file with --out", file=sys.stderr)


def record(
    policy: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[POLICY]")] = None,
    compare: tuple[str, ...] = (),
    task: str | None = None,
    env_kwargs: tuple[str, ...] = (),
    episodes: int = 3,
    seed: int = 7,
    out: Path | None = None,
    deterministic: bool = False,
    which: str = "last",
    width: int = 640,
    height: int = 480,
    speed: float = 2.0,
    camera: Literal["auto", "far", "top", "follow"] = "auto",
    env_timeout: float | None = None,
) -> None:
    """Film a policy, as MP4 and GIF; what costs flashes red.

    Args:
        policy: a run's folder; an exported policy, .safetensors, .onnx or TorchScript (.pt), which runs the code in it;
            or a callable of your own, my_module:policy.
        compare: (further) policies on the same task, filmed side by side in the same layouts.
        task: where to film it; by default the run's task, or the one that an exported policy names. An environment of
            your own must render rgb_array.
        env_kwargs: keyword arguments of your own environment, name=value each.
        episodes: how many, one after the other.
        seed: of the layouts and of the policy's noise.
        out: the name of the video; by default video.mp4 in the run's folder, or beside the exported policy.
        deterministic: act by the policy's mean instead of sampling.
        which: the checkpoint: last, best, or an epoch's number.
        width: of one policy's picture, in pixels.
        height: likewise.
        speed: how many times as fast as the simulated clock.
        camera: where to look from.
        env_timeout: seconds after which your own environment counts as hung; as in training if left out.
    """
    from sbtrpo.media import recording
    from sbtrpo.media.video import NO_ENCODER

    policies = [name for name in (policy, *compare) if name is not None]
    if not policies:
        raise ValueError("name a run's folder or another policy, or several with --compare")
    with Progress(*Progress.get_default_columns(), transient=True) as bar:
        frames = bar.add_task("filming", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(frames, completed=done, total=total)

        films = recording.record(
            policies[0], episodes, seed, out, policies[1:], deterministic, checkpoint(which), width, height,
            speed=speed, camera=camera, progress=progress, task=task, env_kwargs=env_kwargs, env_timeout=env_timeout,
        )  # fmt: skip
    for path in films:
        print(path)
    if not any(path.suffix == ".mp4" for path in films):
        print(NO_ENCODER)


def export(
    run: tyro.conf.Positional[Path],
    format: Literal["policy", "onnx", "torchscript"] = "onnx",
    out: Path | None = None,
    stochastic: bool = False,
    which: str = "last",
    episodes: int = 1000,
    seed: int = 7,
    engine: Literal["auto", "cpu", "gpu", "gpu-on-cpu"] = "auto",
) -> None:
    """Write a policy, normaliser and scaling of actions included, as one file.

    Args:
        run: the run's folder; for onnx and torchscript also a policy's .safetensors file.
        format: onnx or torchscript, which need nothing of this package; or policy: a .safetensors file that `evaluate`,
            `record` and `train --init-from` take, and a card beside it, with an evaluation on fresh episodes.
        out: the file's name; by default policy.onnx, policy.pt or policy.safetensors in the run's folder.
        stochastic: of onnx and torchscript: sample actions from a second input, `noise`, instead of acting by the mean.
        which: the checkpoint: last, best, or an epoch's number.
        episodes: of the evaluation on the card.
        seed: of that evaluation; take one that training did not use.
        engine: what simulates the worlds of that evaluation: cpu, gpu, or the faster one.
    """
    if format == "policy":
        from sbtrpo.runs.card import export_policy

        if stochastic:
            raise ValueError("a policy's file holds the whole distribution of actions; leave --stochastic out")
        for path in export_policy(run, out, checkpoint(which), episodes, seed, engine):
            print(path)
        return
    from sbtrpo.runs import export as writer

    print(writer.export(run, format, out, not stochastic, checkpoint(which)))
