"""Exports a policy as ONNX or TorchScript: observation statistics, network and action bounds in one file.

    action = clip(low + (outputs + 1) (high - low) / 2, low, high)     outputs = network((observation - mean) / std)

The file maps raw observations, (batch, observation size), to actions within the environment's bounds, (batch, *action
shape). If the policy chooses among n actions, it gives the numbers of the chosen ones, (batch,), as the environment
counts them; of several choices at once it gives one number each, (batch, *action shape).

A stochastic policy has a second input, `noise`, so that its user decides on the generator and the seed. Its shape is
(batch, outputs). Its entries are standard normal, or Gumbel's for a choice among actions. Zeros make it deterministic.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sbtrpo.files import check_writable, write_atomically
from sbtrpo.nets.images import KERNEL, PADDING, STRIDE, Image
from sbtrpo.nets.policy import Policy
from sbtrpo.runs.actors import DESCRIPTION
from sbtrpo.runs.evaluation import load_policy
from sbtrpo.runs.policy_file import is_policy_file, stored_policy

Format: TypeAlias = Literal["onnx", "torchscript"]
SUFFIXES: dict[str, str] = {"onnx": ".onnx", "torchscript": ".pt"}
OPSET, IR_VERSION = 17, 8
"""Versions of the ONNX format that runtimes since 2022 can read."""


def export(
    run: str | Path,
    format: Format = "onnx",
    out: str | Path | None = None,
    deterministic: bool = True,
    which: Literal["last", "best"] | int = "last",
) -> Path:
    """Write a policy as one file that can be used without this package; returns its path.

    Args:
        run: the run's folder, or a policy's .safetensors file.
        format: `onnx` or `torchscript`.
        out: where the file goes; by default `policy.onnx` or `policy.pt` in the run's folder, or beside the file.
        deterministic: act by the policy's mean; if False, the file has a second input, `noise`.
        which: the last checkpoint, the best one, or that of a given epoch.

    >>> import tempfile, torch, warnings
    >>> from sbtrpo import TrainConfig, train
    >>> config = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=200)
    >>> path = export(train(config, out=tempfile.mkdtemp(), quiet=True), "torchscript")
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # torch deprecates TorchScript
    ...     policy = torch.jit.load(path)
    >>> policy(torch.zeros(3, 2)).shape
    torch.Size([3, 2])
    """
    if format not in SUFFIXES:
        raise ValueError(f"format must be onnx or torchscript, got {format!r}")
    beside = Path(run).with_suffix(SUFFIXES[format]) if is_policy_file(run) else Path(run) / f"policy{SUFFIXES[format]}"
    target = Path(out) if out is not None else beside
    check_writable(target)
    policy, settings = load_policy(run, which), stored_policy(run, which).settings
    whose = {"task": settings["task"], "algorithm": settings["algo"], "checkpoint": str(which)}
    about = describe(policy, deterministic) | whose
    write = to_onnx if format == "onnx" else to_torchscript
    content = write(policy, deterministic, about)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content, alone=False)
    return target


def describe(policy: Policy, deterministic: bool) -> dict[str, str]:
    """What the user of an exported file must know, as its metadata."""
    noise = "Gumbel(0, 1)" if policy.head.discrete else "Normal(0, 1)"
    return {
        "observation_size": str(len(policy.normaliser.mean)),
        "actions": "discrete" if policy.head.discrete else "continuous",
        "action_low": json.dumps(policy.low.tolist()),
        "action_high": json.dumps(policy.high.tolist()),
        "action_shape": json.dumps(policy.shape),
        "action_start": json.dumps(policy.start),
        "deterministic": json.dumps(deterministic),
        "noise": "none" if deterministic else noise,
    }


# ---- TorchScript -----------------------------------------------------------------------------------------------------


class Network(torch.nn.Module):
    """A policy as a module that maps raw observations, and noise unless it is deterministic, to actions."""

    table: Tensor | None
    mean: Tensor
    std: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        statistics = policy.normaliser
        self.discrete, self.start, self.shape = policy.head.discrete, policy.start, policy.shape
        table = None if policy.table is None else torch.as_tensor(policy.table.astype(np.int64))
        self.register_buffer("table", table)
        self.register_buffer("mean", torch.as_tensor(statistics.mean))
        self.register_buffer("std", torch.as_tensor(np.sqrt(statistics.var + statistics.EPSILON)))
        self.register_buffer("spread", torch.exp(policy.log_std.detach().cpu()))
        for name, bound in zip(("low", "high"), policy.bounds("float32"), strict=True):
            self.register_buffer(name, torch.as_tensor(bound))
        weights = [tensor.detach().cpu().clone() for tensor in policy.params[1:]]
        image, activation = policy.design.image, policy.design.function.module
        convolutions = 0 if image is None else len(image.layers)
        layers: list[torch.nn.Module] = [] if image is None else [Planes(image)]
        for k, (weight, bias) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
            layer: Any
            if k < convolutions:
                kernels = weight.reshape(len(weight), -1, KERNEL, KERNEL)
                layer = torch.nn.Conv2d(kernels.shape[1], len(kernels), KERNEL, STRIDE, PADDING)
                layer.weight = torch.nn.Parameter(kernels, False)
            else:
                layer = torch.nn.Linear(weight.shape[1], len(weight))
                layer.weight = torch.nn.Parameter(weight, False)
            layer.bias = torch.nn.Parameter(bias, False)
            layers += [layer, activation(), *([torch.nn.Flatten()] if k == convolutions - 1 else [])]
        self.layers = torch.nn.Sequential(*layers[:-1])

    def forward(self, observation: Tensor, noise: Tensor | None = None) -> Tensor:
        """`observation` is (batch, observation size), `noise` (batch, outputs)."""
        # In double precision, as in training: for a sensor that hardly varies, this subtracts two large, near numbers.
        inputs = ((observation.to(torch.float64) - self.mean) / self.std).to(torch.float32)
        return self.head(self.layers(inputs), noise)

    def head(self, outputs: Tensor, noise: Tensor | None) -> Tensor:
        """Turn the network's outputs into actions within the environment's bounds."""
        if self.discrete:
            number = torch.argmax(outputs if noise is None else outputs + noise.to(torch.float32), dim=-1)
            return self.start + number if self.table is None else self.table[number]
        action = outputs if noise is None else outputs + self.spread * noise.to(torch.float32)
        action = self.low + (action + 1) * (self.high - self.low) / 2
        return torch.minimum(torch.maximum(action, self.low), self.high).reshape(-1, *self.shape)


class Planes(torch.nn.Module):
    """Images in rows, (batch, size), as convolutions take them."""

    def __init__(self, image: Image) -> None:
        super().__init__()
        self.image = image

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width)"""
        return self.image.planes(x)


def to_torchscript(policy: Policy, deterministic: bool, about: Mapping[str, str]) -> bytes:
    """The policy as a TorchScript file."""
    network = Network(policy).eval()
    batch = torch.zeros(2, len(policy.normaliser.mean)), torch.zeros(2, policy.head.outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates TorchScript, but C++ programs still load it
        trace: Any = torch.jit.trace  # untyped
        traced = trace(network, batch[:1] if deterministic else batch)
        return bytes(traced.save_to_buffer(_extra_files={DESCRIPTION: json.dumps(dict(about))}))


# ---- ONNX ------------------------------------------------------------------------------------------------------------


def to_onnx(policy: Policy, deterministic: bool, about: Mapping[str, str]) -> bytes:
    """The policy as an ONNX file: inputs `observation` (float64) and `noise` (float32), output `action`."""
    onnx = _import_onnx()
    helper, kinds = onnx.helper, onnx.TensorProto
    size, outputs, discrete = len(policy.normaliser.mean), policy.head.outputs, policy.head.discrete
    statistics = policy.normaliser
    constants: dict[str, Any] = {"mean": statistics.mean, "std": np.sqrt(statistics.var + statistics.EPSILON)}
    nodes = [
        helper.make_node("Sub", ["observation", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["normalised"], to=kinds.FLOAT),
    ]
    last = "normalised"
    weights = [tensor.detach().cpu().numpy() for tensor in policy.params[1:]]
    image = policy.design.image
    convolutions = 0 if image is None else len(image.layers)
    if image is not None:
        constants["image"] = np.array([-1, *image.shape_in_rows], np.int64)
        nodes.append(helper.make_node("Reshape", [last, "image"], ["pixels"]))
        nodes.append(helper.make_node("Transpose", ["pixels"], ["planes"], perm=image.to_planes))
        last = "planes"
    for k, (weight, bias) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
        names = [last, f"weight{k}", f"bias{k}"]
        if k < convolutions:
            weight = weight.reshape(len(weight), -1, KERNEL, KERNEL)
            sides = {"kernel_shape": [KERNEL] * 2, "strides": [STRIDE] * 2, "pads": [PADDING] * 4}
            nodes.append(helper.make_node("Conv", names, [f"layer{k}"], **sides))
        else:
            nodes.append(helper.make_node("Gemm", names, [f"layer{k}"], transB=1))
        constants |= {f"weight{k}": weight, f"bias{k}": bias}
        last = f"layer{k}"
        if 2 * k + 2 < len(weights):
            nodes.append(helper.make_node(policy.design.function.onnx, [last], [f"hidden{k}"]))
            last = f"hidden{k}"
        if k == convolutions - 1:
            nodes.append(helper.make_node("Flatten", [last], ["features"]))
            last = "features"
    nodes += _onnx_head(helper, last, policy, deterministic, constants)
    inputs = [helper.make_tensor_value_info("observation", kinds.DOUBLE, ["batch", size])]
    if not deterministic:
        inputs.append(helper.make_tensor_value_info("noise", kinds.FLOAT, ["batch", outputs]))
    kind = kinds.INT64 if discrete else kinds.FLOAT
    action = helper.make_tensor_value_info("action", kind, ["batch", *policy.shape])
    initial = [onnx.numpy_helper.from_array(np.ascontiguousarray(values), name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "policy", inputs, [action], initial)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="sbtrpo")
    helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _onnx_head(helper: Any, outputs: str, policy: Policy, deterministic: bool, constants: dict[str, Any]) -> list[Any]:
    """The nodes that turn the network's outputs into actions, as `Network.head` does; extends `constants`."""
    if policy.head.discrete:
        perturbed = [] if deterministic else [helper.make_node("Add", [outputs, "noise"], ["perturbed"])]
        chosen = outputs if deterministic else "perturbed"
        number = helper.make_node("ArgMax", [chosen], ["number"], axis=-1, keepdims=0)
        if policy.table is not None:
            constants["table"] = policy.table.astype(np.int64)
            return [*perturbed, number, helper.make_node("Gather", ["table", "number"], ["action"], axis=0)]
        constants["start"] = np.array(policy.start, np.int64)
        return [*perturbed, number, helper.make_node("Add", ["number", "start"], ["action"])]
    low, high = policy.bounds("float32")
    constants["shape"] = np.array([-1, *policy.shape], np.int64)
    constants |= {"low": low, "high": high, "one": np.ones(1, np.float32), "half_range": (high - low) / 2}
    nodes = []
    if not deterministic:
        constants["spread"] = np.exp(policy.log_std.detach().cpu().numpy())
        nodes += [
            helper.make_node("Mul", ["noise", "spread"], ["deviation"]),
            helper.make_node("Add", [outputs, "deviation"], ["sampled"]),
        ]
        outputs = "sampled"
    return [
        *nodes,
        helper.make_node("Add", [outputs, "one"], ["shifted"]),
        helper.make_node("Mul", ["shifted", "half_range"], ["stretched"]),
        helper.make_node("Add", ["stretched", "low"], ["unbounded"]),
        helper.make_node("Max", ["unbounded", "low"], ["bounded_below"]),
        helper.make_node("Min", ["bounded_below", "high"], ["bounded"]),
        helper.make_node("Reshape", ["bounded", "shape"], ["action"]),
    ]


def _import_onnx() -> Any:
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError(
            "ONNX is not installed; run `pip install 'sbtrpo[onnx]'`, or choose --format torchscript"
        ) from error
