"""Runs all probes of a profile, one after another, and says what was skipped.

Import this module only if `native.available()`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tandem.kernels.native_pool import NativePool
from tandem.probes.accelerator import (
    ProbedAccelerator,
    copy_both_ways,
    copy_to_device,
    measure_accelerator,
)
from tandem.probes.at_once import Sharer, measure_at_once
from tandem.probes.attention_times import measure_attention
from tandem.probes.beside import beside
from tandem.probes.code_rates import measure_codes
from tandem.probes.contention import (
    BusyWith,
    CpuWork,
    Load,
    attention_work,
    copying_in_memory,
    cpu_works,
    dequantizing,
    measure_contention,
)
from tandem.probes.disks import Disks
from tandem.probes.effort import Effort
from tandem.probes.linear_times import measure_linear
from tandem.probes.memory_rates import measure_memory
from tandem.probes.start_times import measure_starts
from tandem.probes.thread_sweep import sweep_threads
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import AtOnce, Contention, HostMeasurements, Striping
from tandem.profiling.profile import Machine, Profile
from tandem.spec.progress import Progress, no_progress

_AHEAD = 2
"""Steps of which the time may have been taken before they begin: the first ones take long."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What to profile.

    Attributes:
        kernels: digest of the kernels and of the probes.
        probed: the accelerator; None where there is none, for `no_accelerator`'s reason.
        disks: folders on them.
    """

    machine: Machine
    kernels: str
    probed: ProbedAccelerator | None
    no_accelerator: str
    disks: tuple[Path, ...] = ()


def run_profile(
    subject: Subject, effort: Effort, *, thorough: bool, progress: Progress = no_progress
) -> Profile:
    """Measure everything.

    Raises:
        ConfigError: a disk's folder is not there, or TANDEM_CPU_ISA cannot be followed.
    """
    begin = time.perf_counter()
    measured_at = datetime.now(UTC).isoformat(timespec="seconds")
    with Disks(subject.disks, effort) as opened:
        run = _Run(subject, effort, progress, opened)
        disks = run.step("disks", opened.measure) if subject.disks else ()
        striping = run.striping()
        host = run.host(striping)
        accelerator = run.accelerator()
        at_once = run.at_once(striping)
        skipped = opened.skipped
    if accelerator is None:
        skipped = (f"accelerator and link: {subject.no_accelerator}", *skipped)
    if not subject.disks:
        skipped = (*skipped, "disks: none was named; name a folder on each with --disk")
    return Profile(
        machine=subject.machine,
        kernels=subject.kernels,
        shapes=effort.shapes(),
        measured_at=measured_at,
        duration_s=time.perf_counter() - begin,
        thorough=thorough,
        host=host,
        accelerator=accelerator,
        disks=disks,
        striping=striping,
        at_once=at_once,
        skipped=skipped,
        hurried=tuple(run.hurried),
    )


class _Run:
    def __init__(self, subject: Subject, effort: Effort, progress: Progress, disks: Disks) -> None:
        self._subject, self._effort, self._progress = subject, effort, progress
        self.hurried: list[str] = []
        self._begin_s = time.perf_counter()
        self._pool = NativePool(subject.machine.threads)
        self._disks = disks
        self._memory, self._another = (WalkedMemory(effort.memory_bytes) for _ in range(2))
        quantized = [kind for kind in effort.kinds if kind.format is not None]
        self._dequantized = quantized[-1] if quantized else None
        # memory, sweep, codes, starts, contention with a copy
        steps = 5 + len(effort.kinds) + len(effort.kv) + bool(quantized)
        # accelerator, contention with it; disks, contention with them, and their shares
        steps += 2 * (subject.probed is not None) + bool(subject.disks)
        self._steps = steps + bool(disks.folders) + (len(disks.folders) > 1)
        self._steps += bool(subject.probed is not None or disks.folders)  # all at once
        self._done = 0

    def step(self, what: str, measure: Callable[[], Any]) -> Any:
        """Measure, and say so."""
        self._progress(what, self._done, self._steps)
        result = measure()
        self._done += 1
        return result

    def in_rounds(self, what: str, measure: Callable[[Effort], Any]) -> Any:
        """Likewise; in one round if the steps before have taken more of the time than is theirs."""
        effort, taken_s = self._effort, time.perf_counter() - self._begin_s
        due_s = effort.budget_s * (self._done + _AHEAD) / self._steps
        if taken_s > due_s and effort.rounds > 1:
            self.hurried.append(what)
            effort = replace(effort, rounds=1)
        return self.step(what, lambda: measure(effort))

    def striping(self) -> Striping | None:
        """Of several disks, while the CPU works, and the link where there is one."""
        if len(self._disks.folders) < 2:
            return None
        return self.step("disks in balance", self._balanced)

    def _balanced(self) -> Striping | None:
        attention = attention_work(self._pool, self._effort, self._memory)
        loads: list[Callable[[], object]] = [attention.rate]
        link = self._link()
        if link is not None:
            loads.append(link)

        def busy(probe: Callable[[], float]) -> float:
            for load in loads:
                probe = beside(probe, load)
            return probe()

        return self._disks.stripe(busy)

    def accelerator(self) -> Any:
        """None: there is none."""
        probed = self._subject.probed
        if probed is None:
            return None
        return self.in_rounds("accelerator", lambda effort: measure_accelerator(probed, effort))

    def at_once(self, striping: Striping | None) -> tuple[AtOnce, ...]:
        """Attention beside the link, both ways, and the disks; empty where there are neither."""
        sharers: list[Sharer] = []
        if self._subject.probed is not None:
            size = self._effort.link_bytes[-1]
            sharers.append(Sharer("link both ways", copy_both_ways(self._subject.probed, size)))
        if self._disks.folders:
            sharers.append(Sharer("disks", self._disks.reading(_shares(striping))))
        if not sharers:
            return ()
        attention = attention_work(self._pool, self._effort, self._memory)
        return self.in_rounds(
            "all at once", lambda effort: measure_at_once(attention, sharers, effort.rounds)
        )

    def host(self, striping: Striping | None) -> HostMeasurements:
        """All of the host but its disks."""
        pool, most, rounds = self._pool, self._effort, self.in_rounds
        walked, another, link = self._memory, self._another, self._link()
        self._begin_s = time.perf_counter()  # disks, which came first, are on top
        return HostMeasurements(
            threads=pool.num_threads,
            memory=rounds("memory", lambda effort: measure_memory(pool, effort, walked)),
            sweep=rounds(
                "threads",
                lambda effort: sweep_threads(pool.num_threads, effort, walked, another, link),
            ),
            linear=tuple(
                rounds(
                    f"linear, {kind}",
                    lambda effort, kind=kind: measure_linear(pool, effort, kind, walked),
                )
                for kind in most.kinds
            ),
            heads=str(most.heads),
            attention=tuple(
                rounds(
                    f"attention, {kv}",
                    lambda effort, kv=kv: measure_attention(pool, effort, kv, walked),
                )
                for kv in most.kv
            ),
            codes=rounds("quantizing", lambda effort: measure_codes(pool, effort, walked)),
            start=self.step("starts", lambda: measure_starts(pool.num_threads, most)),
            contention=self._contention(striping),
        )

    def _link(self) -> Load | None:
        """A large copy to the accelerator, where there is one."""
        if self._subject.probed is None:
            return None
        return copy_to_device(self._subject.probed, self._effort.link_bytes[-1])

    def _contention(self, striping: Striping | None) -> tuple[Contention, ...]:
        works = cpu_works(self._pool, self._effort, self._memory)
        found: list[Contention] = []
        for other in self._others(striping):
            found += self._beside(works, other)
        return tuple(found)

    def _beside(self, works: tuple[CpuWork, ...], other: BusyWith) -> tuple[Contention, ...]:
        return self.step(f"contention, {other.name}", lambda: measure_contention(works, other))

    def _others(self, striping: Striping | None) -> Iterator[BusyWith]:
        """What the CPU's work shares memory and cores with."""
        effort, link, disks = self._effort, self._link(), self._disks
        copying = copying_in_memory(self._another)  # beside the memory of the CPU's work
        yield BusyWith("one thread copying in the host's memory", "copies in memory", copying)
        if self._dequantized is not None:
            name = f"one thread dequantizing {self._dequantized}"
            yield BusyWith(
                name, "dequantization", dequantizing(effort, self._dequantized, self._another)
            )
        if link is not None:
            yield BusyWith("host to accelerator, pinned", "link", link)
        if disks.folders:
            name = f"reading {', '.join(map(str, disks.folders))}"
            yield BusyWith(name, "disks", disks.reading(_shares(striping)))


def _shares(striping: Striping | None) -> tuple[float, ...]:
    """Of what is read, one per disk."""
    return (1.0,) if striping is None else striping.shares
