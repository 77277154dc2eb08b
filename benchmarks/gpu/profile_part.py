"""The machine's profile, by which `auto` and plans choose."""

import os
import sys
import time

from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.held_out import held_out_rows
from benchmarks.gpu.scale import CODE_MATHS, Scale

from tandem.bench.records import BenchRow
from tandem.devices.this_machine import cache_folder, code_digest, this_machine
from tandem.kernels import native
from tandem.probes.torch_accelerator import TorchAccelerator
from tandem.profiling.profile_file import profile_path, write_profile


def measure_profile(scale: Scale, limit: Deadline, found: Findings) -> None:
    """As `tandem profile`, stored where engines look for it.

    Raises:
        ConfigError: there are no compiled kernels to measure.
    """
    del limit
    native.choose_isa()
    from tandem.probes.profiler import Subject, run_profile

    machine, kernels = this_machine(os.environ), code_digest()
    probed = TorchAccelerator(scale.probed(), CODE_MATHS)
    subject = Subject(machine, kernels, probed, "")
    begun_s = time.monotonic()

    def tell(what: str, done: int, of: int) -> None:
        told = f"profile: {time.monotonic() - begun_s:.1f} s, {done} of {of}: {what}"
        print(told, file=sys.stderr, flush=True)

    profile = run_profile(subject, scale.effort, thorough=False, progress=tell)
    write_profile(profile, profile_path(cache_folder(os.environ), machine))
    card = profile.accelerator
    assert card is not None
    case = "profile"
    size = card.h2d.pinned.sizes[-1]
    ways = (("to the device", card.h2d), ("from the device", card.d2h))
    found.add(
        BenchRow(case, card.name, "copies within memory", card.copy_bytes_per_s / 1e9, "GB/s"),
        BenchRow(case, card.name, "launch, known to have ended", card.launch_s * 1e6, "us"),
        BenchRow(case, card.name, "kernel without work", card.kernel_s * 1e6, "us"),
        *(
            BenchRow(
                case, card.name, f"{name}, pinned", size / way.pinned.seconds[-1] / 1e9, "GB/s"
            )
            for name, way in ways
        ),
        BenchRow(case, machine.cpu, "reading", profile.host.memory.read_bytes_per_s / 1e9, "GB/s"),
        *held_out_rows(card, probed, scale.effort),
    )
