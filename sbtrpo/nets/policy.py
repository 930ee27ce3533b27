"""The policy: a small network, what its outputs mean, and the observation statistics it was trained with.

Everything that acting needs is in one `Policy`: weights, log standard deviations, normaliser, bounds of actions.
Critics are separate networks of the same shape. Weights are plain tensors in a flat list, so that an update can treat
all of them as one vector (`flatten`, `unflatten`) without copying modules.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sbtrpo.nets.distributions import Array, Categorical, Distribution, Gaussian
from sbtrpo.nets.forms import Form, acting_form, to_numpy
from sbtrpo.nets.network import MLP, PUBLISHED, Design, make_mlp, unflatten
from sbtrpo.nets.normaliser import AnyNormaliser, TensorNormaliser


class Policy:
    """A distribution of actions for each observation: Gaussian, or a choice among `actions` where they are `discrete`.

    `params` is [log_std, weight, bias, weight, ...], with an empty log_std for a choice; observations given to `mean`
    and `log_prob` are normalised ones. The Gaussian lives in [-1, 1], which `to_env` maps to `low` and `high`.

    A pool takes actions as vectors that it clips itself, or as choices that count from 0; an environment by itself
    takes only what its action space contains. `act` gives the latter, `act_in_pool` the former.

    On a GPU the statistics of observations are tensors there, on the CPU NumPy arrays, unless `use` says otherwise;
    `act` takes and gives NumPy arrays in either case, `act_tensor` tensors.
    """

    def __init__(
        self,
        observation_size: int,
        actions: int,
        hidden: Sequence[int],
        generator: torch.Generator,
        device: str = "cpu",
        discrete: bool = False,
        low: NDArray[Any] | None = None,
        high: NDArray[Any] | None = None,
        design: Design = PUBLISHED,
    ) -> None:
        self.head: Distribution = Categorical(actions) if discrete else Gaussian(actions)
        self.observation_size, self.hidden, self.design = observation_size, tuple(hidden), design
        image = design.image
        if image is not None and image.size != observation_size:
            raise ValueError(f"images of {image.shape} have {image.size} pixels, and observations {observation_size}")
        self.normaliser: AnyNormaliser = acting_form(device, worlds=0).normaliser(observation_size)
        self.normaliser.plain = design.plain
        if not design.normalise:
            self.normaliser.fix(0.0, 1.0)
        elif image is not None:
            self.normaliser.fix((image.high + image.low) / 2, (image.high - image.low) / 2)
        network = make_mlp([observation_size, *hidden, actions], generator, device, design)
        self.params: list[Tensor] = [torch.full((self.head.spreads,), design.log_std, device=device), *network.params]
        self.device = device
        self.low = np.full(self.head.spreads, -1.0) if low is None else np.asarray(low, np.float64)
        self.high = np.full(self.head.spreads, 1.0) if high is None else np.asarray(high, np.float64)
        self.shape: tuple[int, ...] = () if discrete else (actions,)
        """Of an action, as the environment takes it."""
        self.dtype = "int64" if discrete else ""
        """Likewise; empty for the network's own."""
        self.start = 0
        """The number of the first choice."""
        self.table: NDArray[Any] | None = None
        """(choices, *shape) the action that each choice stands for, where that is no number."""
        self._sent: tuple[Tensor, Tensor] | None = None

    @property
    def log_std(self) -> Tensor:
        """(actions,), empty for a choice."""
        return self.params[0]

    def network(self, params: Sequence[Tensor]) -> MLP:
        """The network with these parameters, which have no log_std in front."""
        return MLP(list(params), self.design)

    def mean(self, observation: Tensor, params: Sequence[Tensor] | None = None) -> Tensor:
        """The network's outputs for normalised observations, a Gaussian's mean actions: (..., actions)."""
        return self.network((params or self.params)[1:])(observation)

    def log_prob(self, observation: Tensor, action: Tensor, params: Sequence[Tensor] | None = None) -> Tensor:
        """Log-density of actions, summed over their dimensions: (...)."""
        params = params or self.params
        log_prob: Tensor = self.head.log_prob(torch, self.mean(observation, params), params[0], action)
        return log_prob

    def use(self, form: Form) -> None:
        """Keep the statistics of observations in another form from now on."""
        before = self.normaliser
        self.normaliser = form.normaliser(self.observation_size)
        self.normaliser.load_state_dict(before.state_dict())
        self.normaliser.learns, self.normaliser.plain = before.learns, before.plain

    def to_env(self, action: Array) -> Array:
        """Actions as the environment's pool takes them: from [-1, 1] to its bounds, not clipped; or numbers from 0 on.

        An array of NumPy gives one, and a tensor gives a tensor in the same place.
        """
        tensor = isinstance(action, Tensor)
        if self.head.discrete:
            return action[..., 0].long() if tensor else action[..., 0].astype(np.int64)
        if (self.low == -1).all() and (self.high == 1).all():
            return action
        low, high = self._bounds(action.device) if tensor else (self.low, self.high)
        scaled = low + (action + 1) * (high - low) / 2
        return scaled.to(action.dtype) if tensor else scaled.astype(action.dtype)

    def bounds(self, dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Of actions, in a precision; where that does not hold them, the next numbers within."""
        low, high = self.low.astype(dtype), self.high.astype(dtype)
        return (
            np.where(low < self.low, np.nextafter(low, np.inf, dtype=dtype), low),
            np.where(high > self.high, np.nextafter(high, -np.inf, dtype=dtype), high),
        )

    def _bounds(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Of actions, as tensors; sent to a device once, not in every step."""
        if self._sent is None or self._sent[0].device != device:
            self._sent = torch.tensor(self.low, device=device), torch.tensor(self.high, device=device)
        return self._sent

    def act(
        self,
        observation: NDArray[Any],
        deterministic: bool = False,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> NDArray[Any]:
        """Actions that the environment's action space contains, for raw observations; statistics stay.

        Args:
            observation: one, (observation_size,), or N of them, (N, observation_size); images also in their shape.
            deterministic: the most probable actions; otherwise sampled ones.
            seed: of the noise; it takes the place of the generator.
            generator: of the noise, on the CPU; torch's default one if left out.
        """
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
        raw = self._in_rows(np.asarray(observation, np.float64))
        action = self.act_in_pool(raw, deterministic, generator)
        if self.head.discrete:
            return action + self.start if self.table is None else self.table[action]
        dtype = self.dtype or str(action.dtype)
        within: NDArray[Any] = np.clip(action.astype(dtype), *self.bounds(dtype))
        return within.reshape((*raw.shape[:-1], *self.shape))

    def act_in_pool(
        self, observation: NDArray[Any], deterministic: bool, generator: torch.Generator | None
    ) -> NDArray[Any]:
        """Actions as the policy was trained with them: what `to_env` gives, for N raw observations."""
        decided: NDArray[Any] = self.to_env(self._decide(observation, deterministic, generator).cpu().numpy())
        return decided

    def act_tensor(
        self, observation: Tensor, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """The same as `act` for raw observations on the policy's device, where actions are, too."""
        observation = self._in_rows(observation)
        action: Tensor = self.to_env(self._decide(observation, deterministic, generator))
        if self.head.discrete:
            return action + self.start if self.table is None else torch.as_tensor(self.table).to(action.device)[action]
        dtype = self.dtype or str(action.dtype).removeprefix("torch.")
        low, high = (torch.as_tensor(bound, device=action.device) for bound in self.bounds(dtype))
        return action.to(low.dtype).clamp(low, high).reshape((*observation.shape[:-1], *self.shape))

    def _in_rows(self, observation: Array) -> Array:
        """One observation or N of them as (..., observation_size)."""
        size, image, shape = self.observation_size, self.design.image, tuple(observation.shape)
        if image is not None and shape[-len(image.shape) :] == image.shape and len(shape) <= len(image.shape) + 1:
            return observation.reshape((*shape[: -len(image.shape)], size))
        if len(shape) not in (1, 2) or shape[-1] != size:
            raise ValueError(f"observation must have the shape ({size},), or (N, {size}) for N of them, got {shape}")
        return observation

    @torch.no_grad()
    def _decide(self, observation: Array, deterministic: bool, generator: torch.Generator | None) -> Tensor:
        """Actions of the distribution itself for raw observations of either kind: (..., action size)."""
        if isinstance(self.normaliser, TensorNormaliser):
            inputs = self.normaliser(torch.as_tensor(observation, dtype=torch.float64, device=self.device))
        else:
            inputs = torch.from_numpy(self.normaliser(to_numpy(observation)))
        outputs = self.mean(inputs.to(self.log_std))
        if deterministic:
            mode: Tensor = self.head.mode(outputs)
            return mode
        noise = self.head.noise(torch, tuple(outputs.shape[:-1]), generator).to(outputs)
        sample: Tensor = self.head.sample(torch, outputs, self.log_std, noise)
        return sample

    def set(self, theta: Tensor) -> None:
        """Take over parameters given as one vector (P,)."""
        for tensor, values in zip(self.params, unflatten(theta, self.params), strict=True):
            tensor.copy_(values)

    def rescale(self, ratio: NDArray[np.float64], shift: NDArray[np.float64]) -> None:
        """Stay the same function where a normalised observation x is from now on (x - shift) / ratio."""
        weight, bias = self.params[1], self.params[2]
        before = weight.double()
        bias.copy_(bias + before @ torch.as_tensor(shift, device=weight.device))
        weight.copy_(before * torch.as_tensor(ratio, device=weight.device))

    def state_dict(self) -> dict[str, Any]:
        """Weights and statistics."""
        image = self.design.image
        table = {} if self.table is None else {"table": self.table.copy()}
        return {
            **({} if image is None else {"image": image.as_dict()}),
            "params": [tensor.clone() for tensor in self.params],
            "normaliser": self.normaliser.state_dict(),
            "low": self.low.copy(),
            "high": self.high.copy(),
            "action": {"shape": list(self.shape), "dtype": self.dtype, "start": self.start, **table},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        for tensor, saved in zip(self.params, state["params"], strict=True):
            tensor.copy_(torch.as_tensor(saved))
        self.normaliser.load_state_dict(state["normaliser"])
        self.low, self.high = np.array(state["low"]), np.array(state["high"])
        self._sent = None
        if (action := state.get("action")) is not None:  # older versions did not tell
            self.shape = tuple(map(operator.index, action["shape"]))
            self.dtype, self.start = str(action["dtype"]), int(action["start"])
            np.dtype(self.dtype or "float32")  # one that is none is told of here
            self.table = np.array(action["table"]) if "table" in action else None
            if self.table is not None and self.table.shape != (self.head.outputs, *self.shape):
                raise ValueError("the table of actions has another form")


def make_policy(
    observation_size: int,
    actions: gymnasium.spaces.Box | gymnasium.spaces.Discrete,
    hidden: Sequence[int],
    generator: torch.Generator,
    device: str = "cpu",
    design: Design = PUBLISHED,
) -> Policy:
    """A policy for the action space of an environment, of whatever shape."""
    if isinstance(actions, gymnasium.spaces.Discrete):
        policy = Policy(observation_size, int(actions.n), hidden, generator, device, discrete=True, design=design)
        policy.start = int(actions.start)
        policy.table = getattr(actions, "table", None)
        policy.shape = () if policy.table is None else policy.table.shape[1:]
    else:
        low, high = actions.low.ravel(), actions.high.ravel()
        policy = Policy(observation_size, len(low), hidden, generator, device, low=low, high=high, design=design)
        policy.shape = actions.shape
    policy.dtype = str(actions.dtype if policy.table is None else policy.table.dtype)
    return policy
