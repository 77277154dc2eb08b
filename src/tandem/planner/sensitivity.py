"""What more of a resource would bring, by planning anew for the larger machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tandem.planner.aside import Aside
from tandem.planner.candidate import Candidate
from tandem.planner.footprint import Footprint
from tandem.planner.host_alone import with_host, with_more_memory
from tandem.planner.in_step import InStep
from tandem.planner.option import Option
from tandem.planner.policies import Policy
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.spec.hardware import HostFacts

_MORE_BYTES, _MORE_BYTES_PER_S, _MORE_CORES = 10**9, 10e9, 8
_MORE_DISK_BYTES_PER_S = 1e9
_NEAR = 5
"""Of the plans that come near the best of this machine, how many are tried on a larger one."""
_REACHED_SHARE = 0.8
"""Of the memory channels' peak, what many cores together reach."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A larger machine and the fastest option known for it.

    Attributes:
        base: the fastest one known for this machine. What is chosen may be slower by as little as
            makes it worth being simpler, which is no gain of the larger machine.
    """

    change: str
    option: Option
    base: Option

    @property
    def gain(self) -> float:
        """Tokens per second over those of the fastest option for this machine, less 1. A faster
        link may come to a small loss: its copies take host memory from the CPU.
        """
        return self.option.tokens_per_s / self.base.tokens_per_s - 1


def begin_sensitivities(
    search: Search, policy: Policy, in_step: InStep, chosen: Option, aside: Aside
) -> list[Callable[[], Sensitivity | None]]:
    """One more of each resource. The best candidates are always tried on the larger machine.

    Returns: what waits for each; None: nothing keeps to the policy and the question's bound there.
    """
    ranked = search.best(policy)
    assert ranked is not None, "something was chosen"
    near = (option.candidate for option in in_step.finalists(policy)[:_NEAR])
    known = list(dict.fromkeys([chosen.candidate, ranked.candidate, *near]))
    base = in_step.fastest(policy, [chosen.candidate])
    assert base is not None, "what was chosen is one"
    here = chosen.candidate, base.candidate
    search.hopeless()  # found once for all larger machines
    return [
        aside.begin(partial(_larger, search, policy, base, known, here, change, larger))
        for change, larger in larger_machines(search.question)
    ]


def _larger(
    search: Search,
    policy: Policy,
    base: Option,
    known: Sequence[Candidate],
    here: Sequence[Candidate],
    change: str,
    larger: Question,
) -> Sensitivity | None:
    there = Search(larger, like=search, known=known)
    in_step = InStep(there)
    in_step.bests(policy, known)
    # of plans told apart in large steps, those of this machine may be better by a little
    option = in_step.fastest(policy, here)
    return None if option is None else Sensitivity(change, option, base)


def larger_machines(question: Question) -> Iterator[tuple[str, Question]]:
    """The question for machines with more of one thing each."""
    hardware, disk = question.hardware, question.hardware.host.disk_bytes_per_s
    if disk is not None and not Footprint(question).holds_weights:
        host = replace(hardware.host, disk_bytes_per_s=disk + _MORE_DISK_BYTES_PER_S)
        yield "+1 GB/s disk", replace(question, hardware=replace(hardware, host=host))
    if question.host_only:
        yield from _larger_hosts(question)
        return
    accelerator, link = hardware.accelerator, hardware.link
    accelerator = replace(accelerator, memory_bytes=accelerator.memory_bytes + _MORE_BYTES)
    yield (
        "+1 GB GPU memory",
        replace(
            question,
            hardware=replace(hardware, accelerator=accelerator),
            device_bytes=question.device_bytes + _MORE_BYTES,
        ),
    )
    link = replace(
        link,
        h2d_bytes_per_s=link.h2d_bytes_per_s + _MORE_BYTES_PER_S,
        d2h_bytes_per_s=link.d2h_bytes_per_s + _MORE_BYTES_PER_S,
    )
    yield "+10 GB/s link", replace(question, hardware=replace(hardware, link=link))
    if hardware.host.cores is not None:
        cores = hardware.host.cores
        host = with_cores(hardware.host, cores, cores + _MORE_CORES)
        yield "+8 cores", replace(question, hardware=replace(hardware, host=host))


def _larger_hosts(question: Question) -> Iterator[tuple[str, Question]]:
    """Of a host alone: what was measured of it does not follow rates."""
    yield "+1 GB memory", with_more_memory(question, _MORE_BYTES)
    host = question.hardware.host
    if question.measured is not None:
        return

    def alone(other: HostFacts) -> Question:
        return replace(question, hardware=with_host(question.hardware, other))

    pool = host.pool_bytes_per_s + _MORE_BYTES_PER_S
    faster = replace(
        host,
        memory_bandwidth_bytes_per_s=host.memory_bandwidth_bytes_per_s + _MORE_BYTES_PER_S,
        shared_memory_bandwidth_bytes_per_s=pool,
    )
    yield "+10 GB/s memory rate", alone(faster)
    if host.cores is not None:
        yield "+8 cores", alone(with_cores(host, host.cores, host.cores + _MORE_CORES))


def with_cores(host: HostFacts, known: int, cores: int) -> HostFacts:
    """The same host with `cores` of its `known` cores, or more.

    In proportion; the read rate up to what the memory channels give. Copies over the link need no
    cores: fewer leave them what there was.
    """
    factor = cores / known
    reached = host.memory_bandwidth_bytes_per_s
    ceiling = (host.peak_memory_bandwidth_bytes_per_s or reached) * _REACHED_SHARE
    rate = min(reached * factor, max(reached, ceiling))
    return replace(
        host,
        cores=cores,
        flops_per_s=host.flops_per_s * factor,
        memory_bandwidth_bytes_per_s=rate,
        shared_memory_bandwidth_bytes_per_s=max(host.pool_bytes_per_s, rate),
    )
