"""Runs all probes of a profile, one after another, and says what was skipped.

Import this module only if `native.available()`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tandem.kernels.native_pool import NativePool
from tandem.probes.accelerator import (
    ProbedAccelerator,
    copy_to_device,
    measure_accelerator,
)
from tandem.probes.attention_times import measure_attention
from tandem.probes.code_rates import measure_codes
from tandem.probes.contention import copy_in_memory, measure_contention
from tandem.probes.disks import measure_disks
from tandem.probes.effort import Effort
from tandem.probes.linear_times import measure_linear
from tandem.probes.memory_rates import measure_memory, sweep_threads
from tandem.probes.start_times import measure_starts
from tandem.profiling.measurements import Contention, HostMeasurements
from tandem.profiling.profile import Machine, Profile
from tandem.spec.progress import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Subject:
    """What to profile.

    Attributes:
        kernels: digest of the compiled kernels.
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
    run = _Run(subject, effort, progress)
    disks, skipped = run.disks()
    host = run.host()
    accelerator = run.accelerator()
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
        skipped=skipped,
    )


class _Run:
    def __init__(self, subject: Subject, effort: Effort, progress: Progress) -> None:
        self._subject, self._effort, self._progress = subject, effort, progress
        self._pool = NativePool(subject.machine.threads)
        # memory, sweep, codes, starts, contention; accelerator, contention with it; disks
        steps = 5 + len(effort.kinds) + len(effort.kv)
        self._steps = steps + 2 * (subject.probed is not None) + bool(subject.disks)
        self._done = 0

    def _step(self, what: str, measure: Callable[[], Any]) -> Any:
        self._progress(what, self._done, self._steps)
        result = measure()
        self._done += 1
        return result

    def disks(self) -> Any:
        folders = self._subject.disks
        if not folders:
            return (), ()
        return self._step("disks", lambda: measure_disks(folders, self._effort))

    def accelerator(self) -> Any:
        probed = self._subject.probed
        if probed is None:
            return None
        return self._step("accelerator", lambda: measure_accelerator(probed, self._effort))

    def host(self) -> HostMeasurements:
        pool, effort, step = self._pool, self._effort, self._step
        return HostMeasurements(
            threads=pool.num_threads,
            memory=step("memory", lambda: measure_memory(pool, effort)),
            sweep=step("threads", lambda: sweep_threads(pool.num_threads, effort)),
            linear=tuple(
                step(f"linear, {kind}", lambda kind=kind: measure_linear(pool, effort, kind))
                for kind in effort.kinds
            ),
            heads=str(effort.heads),
            attention=tuple(
                step(f"attention, {kv}", lambda kv=kv: measure_attention(pool, effort, kv))
                for kv in effort.kv
            ),
            codes=step("quantizing", lambda: measure_codes(pool, effort)),
            start=step("starts", lambda: measure_starts(pool.num_threads, effort)),
            contention=self._contention(),
        )

    def _contention(self) -> tuple[Contention, ...]:
        pool, effort, probed = self._pool, self._effort, self._subject.probed
        copies = {"one thread copying in the host's memory": copy_in_memory(effort.memory_bytes)}
        if probed is not None:
            size = effort.link_bytes[-1]
            copies["host to accelerator, pinned"] = copy_to_device(probed, size)
        return tuple(
            self._step(
                f"contention, {name}",
                lambda name=name, copy=copy: measure_contention(pool, effort, name, copy),
            )
            for name, copy in copies.items()
        )
