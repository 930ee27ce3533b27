"""Updates of several learners at once: what their trust regions ask for is computed together, in batched products.

A method's update is written for one learner, and knows nothing of others. Here each runs in a thread of its own, and
only one of them at a time, until it asks its trust region for a solution or for a trial step, or comes to a pass of
recorded minibatches. When all have asked, all are answered at once. A learner's numbers are those that it has alone,
but for the rounding of batched products, and do not depend on what the others' are.
"""

from __future__ import annotations

import functools
import threading
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar, cast

import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.base import Trial
from sbtrpo.algorithms.lessons import Lesson, Together
from sbtrpo.algorithms.trust_region import Solution, TrustRegion, TrustRegionSettings, conjugate_gradient
from sbtrpo.errors import Alarm
from sbtrpo.nets.linearised import Linearised, LinearisedTogether
from sbtrpo.nets.network import unflatten
from sbtrpo.nets.policies import networks
from sbtrpo.nets.replayed import Replayed, passed_on, side_by_side

T = TypeVar("T")


class SharedRegion(TrustRegion):
    """A trust region that asks for solutions and trials together with those of other learners."""

    @override
    def solve(self, b: Tensor, settings: TrustRegionSettings, add: Callable[[Tensor], Tensor] | None) -> Solution:
        solution: Solution = ask(Solve(self, b, settings, add))
        return solution

    @override
    def evaluate(self, theta: Tensor) -> Trial:
        trial: Trial = ask(Try(self, theta))
        return trial

    _old: Trial | None = None

    @property
    def old(self) -> Trial:  # not a cached property, which in Python 3.11 all instances compute under one lock
        """At θ itself: asked for as others are, so that differences between the two are not those of rounding."""
        if self._old is None:
            self._old = self.evaluate(self.theta)
        return self._old


class Request(ABC):
    """What an update waits for."""

    @classmethod
    @abstractmethod
    def answer(cls, asked: Sequence[Self]) -> list[Any]:
        """The answers to several of this kind, whose batches and networks are of one shape."""


@dataclass(frozen=True)
class Try(Request):
    """Surrogates and KL of a region's batch at other parameters."""

    region: TrustRegion
    theta: Tensor

    @classmethod
    @override
    def answer(cls, asked: Sequence[Try]) -> list[Trial]:
        regions, head = [one.region for one in asked], asked[0].region.head
        params = _stacked([unflatten(one.theta, one.region.policy.params) for one in asked])
        old_log_std, log_std = torch.stack([region.log_std for region in regions])[:, None], params[0][:, None]
        batches = [region.batch for region in regions]
        scale = log_std.new_tensor([region.kl_scale for region in regions])
        total = torch.zeros(())
        for rows in regions[0].chunks.rows:
            obs, action, log_prob = (
                torch.stack([getattr(batch, name)[rows] for batch in batches]) for name in ("obs", "action", "log_prob")
            )
            advantages = torch.stack([batch.advantages[:, rows] for batch in batches])
            before = torch.stack([region.chunks.output[rows] for region in regions])
            outputs = networks(params[1:], obs, regions[0].policy.design.function)
            ratio = torch.exp(head.log_prob(torch, outputs, log_std, action) - log_prob)
            kl = head.kl(torch, (before, old_log_std), (outputs, log_std)).mean(dim=1) * scale
            surrogates = (advantages * ratio[:, None]).mean(dim=2)
            share = ratio.shape[1] / len(batches[0].obs)
            total = total.to(kl.device) + torch.cat([kl[:, None], surrogates], dim=1).double() * share
        return [Trial(kl, tuple(surrogates)) for kl, *surrogates in total.tolist()]


@dataclass(frozen=True)
class Solve(Request):
    """The natural gradients of the rows of b; see `solve` of the trust region."""

    region: TrustRegion
    b: Tensor
    settings: TrustRegionSettings
    add: Callable[[Tensor], Tensor] | None = None

    @classmethod
    @override
    def answer(cls, asked: Sequence[Solve]) -> list[Solution]:
        if not all(one.region.chunks.all_kept for one in asked):  # so large that one of them keeps the device busy
            return [TrustRegion.solve(one.region, one.b, one.settings, one.add) for one in asked]
        rows, size = max(len(one.b) for one in asked), asked[0].b.shape[1]
        b = asked[0].b.new_zeros((len(asked), rows, size))  # rows beyond a learner's own are zero, and solved as such
        for mine, one in zip(b, asked, strict=True):
            mine[: len(one.b)] = one.b
        product = _product([one.region for one in asked])

        def of_rows(vectors: Tensor) -> Tensor:
            apart = vectors.view_as(b)
            products = product(apart)
            for one, mine, own in zip(asked, products, apart, strict=True):
                if one.add is not None:
                    mine += one.add(own)
            return products.flatten(0, 1)

        def of_settings(name: str) -> Tensor:
            values = torch.tensor([getattr(one.settings, name) for one in asked], dtype=torch.float64)
            return values.repeat_interleave(rows).to(b.device)

        names = ("cg_iterations", "cg_tolerance", "cg_epsilon")
        found = conjugate_gradient(of_rows, b.flatten(0, 1), *map(of_settings, names))
        starts = range(0, len(asked) * rows, rows)
        own = [slice(start, start + len(one.b)) for start, one in zip(starts, asked, strict=True)]
        return [Solution(found.x[k], found.product[k], found.taken[k], found.residual[k]) for k in own]


@dataclass(frozen=True)
class Pass(Request):
    """A pass of recorded minibatches."""

    replayed: Replayed
    order: Tensor

    @classmethod
    @override
    def answer(cls, asked: Sequence[Pass]) -> list[Exception | None]:
        alike: dict[Hashable, list[Pass]] = defaultdict(list)
        for one in asked:
            alike[one.kind].append(one)
        passes = [_in_company(group) for group in alike.values()]
        found: dict[Replayed, Exception | None] = {}
        for group, (replayed, _), error in zip(alike.values(), passes, side_by_side(passes), strict=True):
            errors = [error] * len(group)
            if isinstance(replayed.work, Together):
                if error is None:
                    replayed.work.store()
                else:  # nothing is kept of it, and only whoever is to blame fails
                    warnings.warn(f"what learners do together failed, so each goes by itself: {error!r}", Alarm, 2)
                    errors = side_by_side([(one.replayed, one.order) for one in group])
            found.update(zip((one.replayed for one in group), errors, strict=True))
        return [found[one.replayed] for one in asked]

    @property
    def kind(self) -> Hashable:
        """The same of passes that can go in company."""
        work = self.replayed.work
        kind = work.kind if isinstance(work, Lesson) else None
        return self.replayed if kind is None else (kind, self.replayed.rows)


def _in_company(alike: Sequence[Pass]) -> tuple[Replayed, Tensor]:
    """One pass for all; what it is recorded in is kept for as long as nobody leaves."""
    first = alike[0].replayed
    if len(alike) == 1:
        return first, alike[0].order
    slopes = [cast(Lesson, one.replayed.work).kind_of_slopes for one in alike]
    alike = [one for kind in dict.fromkeys(slopes) for one, its in zip(alike, slopes, strict=True) if its == kind]
    lessons = [cast(Lesson, one.replayed.work) for one in alike]
    if first.company is None or cast(Together, first.company.work).lessons != lessons:
        first.company = Replayed(Together(lessons), len(alike) * first.rows, str(alike[0].order.device))
    together = cast(Together, first.company.work)
    together.load()
    return first.company, together.numbers([one.order for one in alike], first.rows)


def _stacked(params: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Parameters of several learners, (L, ...) each."""
    return [torch.stack(alike) for alike in zip(*params, strict=True)]


def _product(regions: Sequence[TrustRegion]) -> Callable[[Tensor], Tensor]:
    """(F + damping I) v of each region for each of its vectors: (L, K, P) -> (L, K, P); see `TrustRegion.fisher`."""
    pairs = zip(*(region.chunks for region in regions), strict=True)
    chunks = [LinearisedTogether([cast(Linearised, network) for _, network in pair]) for pair in pairs]
    log_std, like, head = torch.stack([r.log_std for r in regions]), regions[0].policy.params, regions[0].head
    damping = log_std.new_tensor([region.damping for region in regions])[:, None, None]
    kl_scale = log_std.new_tensor([region.kl_scale for region in regions])[:, None, None]
    scale = log_std.new_tensor([region.kl_scale / len(region.batch.obs) for region in regions])[:, None]

    def of_chunk(network: LinearisedTogether, tangents: Sequence[Tensor]) -> Tensor:
        change = head.metric(torch, network.output, log_std, network.pushforward(tangents))
        change *= scale
        return network.pullback(change)

    def product(vectors: Tensor) -> Tensor:
        parts = torch.split(vectors, [tensor.numel() for tensor in like], dim=2)
        first, *rest = (torch.unflatten(part, 2, tensor.shape) for part, tensor in zip(parts, like, strict=True))
        summed = functools.reduce(torch.add, [of_chunk(network, rest) for network in chunks])
        return torch.cat([first * (2 * kl_scale), summed], dim=2).addcmul_(vectors, damping)

    return product


# ---- one at a time, until they ask ---------------------------------------------------------------------------------


class Strand(threading.Thread, Generic[T]):
    """Work in a thread of its own that goes on only while whoever it asks waits: functions that it calls may ask."""

    result: T | Exception
    """What came out, or what went wrong."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._work, self._threads = work, torch.get_num_threads()
        self._asked: SimpleQueue[Request | None] = SimpleQueue()
        self._answered: SimpleQueue[Any] = SimpleQueue()

    def proceed(self, answer: Any = None) -> Request | None:
        """Let it go on, with the answer to what it asked, until it asks again; None if it has come to its end."""
        if self.ident is None:
            self.start()
        else:
            self._answered.put(answer)
        return self._asked.get()

    def ask(self, request: Request) -> Any:
        """From within: wait for an answer."""
        self._asked.put(request)
        answer = self._answered.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @override
    def run(self) -> None:
        torch.set_num_threads(self._threads)  # which every thread has to be told
        passed_on.set(lambda replayed, order: self.ask(Pass(replayed, order)))
        try:
            self.result = self._work()
        except Exception as error:
            self.result = error
        self._asked.put(None)


def ask(request: Request) -> Any:
    """The answer to a request, together with those of other strands."""
    return cast(Strand[Any], threading.current_thread()).ask(request)


def together(works: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """What pieces of work give, or what went wrong with them. What they ask for is answered together.

    Trials are answered before solutions, and those before passes of minibatches: so nobody solves before all are ready
    for it, and first-order methods wait to pass over their minibatches together with the others' critics.
    """
    strands = [Strand(work) for work in works]
    asked = {strand: strand.proceed() for strand in strands}
    while waiting := {strand: request for strand, request in asked.items() if request is not None}:
        kind = next(kind for kind in _IN_TURN if any(isinstance(request, kind) for request in waiting.values()))
        now = [strand for strand, request in waiting.items() if isinstance(request, kind)]
        for strand, answer in zip(now, _answers(kind, [waiting[strand] for strand in now]), strict=True):
            asked[strand] = strand.proceed(answer)
    return [strand.result for strand in strands]


_IN_TURN: tuple[type[Request], ...] = (Try, Solve, Pass)


def _answers(kind: type[Request], asked: Sequence[Any]) -> Sequence[Any]:
    try:
        return kind.answer(asked)
    except Exception as error:
        return [error] * len(asked)
