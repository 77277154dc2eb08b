"""The profile of an emulated accelerator and of the cores that attend beside it.

Import this module only if there are compiled kernels.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from tandem.bench.online.bed import PACED, Bed, no_pool
from tandem.bench.online.cell import DTYPE, OnlineCell
from tandem.bench.online.plans import ask
from tandem.devices.host_facts import processor_name
from tandem.devices.this_machine import code_digest
from tandem.probes.effort import Effort, coarse
from tandem.probes.kernel_cases import HeadShape
from tandem.probes.linear_cases import FLOAT16
from tandem.probes.profiler import Subject, run_profile
from tandem.profiling.profile import Machine, Profile
from tandem.runtime.paced.executor import PacedClock, RealClock
from tandem.runtime.paced.probed import PacedAccelerator
from tandem.runtime.paced.shared_memory import emulated_contention, emulated_sweep
from tandem.spec.model import ModelSpec


def effort_for(model: ModelSpec) -> Effort:
    """As `tandem profile`'s, of one element type and the model's own heads."""
    usual = coarse()
    heads = HeadShape(model.num_heads, model.num_kv_heads, model.head_dim)
    return Effort(
        rounds=usual.rounds,
        kinds=(FLOAT16,),
        sides=usual.sides,
        rows=usual.rows,
        heads=heads,
        kv=(DTYPE,),
        batches=(1, 16, 64),
        contexts=(64, 512, 1536),
        memory_bytes=usual.memory_bytes,
        link_bytes=usual.link_bytes,
        disk_bytes=usual.disk_bytes,
        trips=usual.trips,
    )


def measured_bed(
    cell: OnlineCell,
    cores: tuple[int, ...],
    effort: Effort | None,
    report: Callable[[str], None],
) -> Bed:
    """In real time, planned for by what the probes found.

    Args:
        effort: of the probes; None: as much as `tandem profile` takes for one element type.
    """
    profile = profile_cell(cell, cores, effort or effort_for(cell.model), report)
    host_bytes, tokens = cell.hardware.host.memory_bytes, cell.max_num_batched_tokens
    workload = cell.load.workload()
    question = ask(profile, cell.model, workload, host_bytes, tokens, cell.step_sizes)
    rate = profile.host.memory.read_bytes_per_s
    return Bed(PACED, question, rate, cores, cell.cache_bytes, RealClock, no_pool)


def profile_cell(
    cell: OnlineCell,
    cores: tuple[int, ...],
    effort: Effort,
    report: Callable[[str], None],
    clock: PacedClock | None = None,
) -> Profile:
    """What the probes of `tandem profile` find, run on the cores that will attend.

    Args:
        clock: of the accelerator; by default real.
    """

    def measure() -> Profile:
        os.sched_setaffinity(0, cores)  # of this thread, and of those that it starts
        torch.set_num_threads(len(cores))
        probed = PacedAccelerator(cell.hardware, cell.truth, clock)
        machine = Machine(probed.name, processor_name(), cores, len(cores))
        subject = Subject(machine, code_digest(), probed, "")
        try:
            found = run_profile(
                subject, effort, thorough=False, progress=lambda what, *_: report(f"probing {what}")
            )
        finally:
            probed.close()
        pool = cell.hardware.host.pool_bytes_per_s
        contention = tuple(emulated_contention(each, pool) for each in found.host.contention)
        sweep = emulated_sweep(found.host.sweep, contention, pool)
        host = replace(found.host, contention=contention, sweep=sweep)
        # beside a link that moves nothing, "all at once" says nothing
        return replace(found, host=host, at_once=())

    with ThreadPoolExecutor(1, thread_name_prefix="tandem-profile") as prober:
        return prober.submit(measure).result()
