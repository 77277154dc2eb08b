"""`tandem profile`: measure this machine, so that plans need not assume it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tandem.probes.profiler import Subject
    from tandem.profiling.profile import Machine, Profile

_BUSY_SHARE = 0.5
"""Of the threads: a load average above it is others' work that what is measured must share with."""


def profile(
    disk: Annotated[
        list[Path] | None,
        typer.Option(help="Folder on a disk to measure; may be repeated.", metavar="DIR"),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Finer and with more repeats: some minutes.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Write the profile here instead of the cache.", metavar="FILE"),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Show what was measured before; measure nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
) -> None:
    """Measure what this machine reaches, for plans.

    Its memory, kernels, disks and link, for plans and placements.
    """
    from tandem.cli.profile_text import profile_text
    from tandem.devices.this_machine import cache_folder, code_digest, this_machine
    from tandem.profiling.profile_file import profile_path, read_profile, to_json, write_profile

    machine, kernels = this_machine(os.environ), code_digest()
    path = output or profile_path(cache_folder(os.environ), machine)
    if show:
        found = read_profile(path, machine, kernels, named=output is not None)
    else:
        found = _measure(machine, kernels, tuple(disk or ()), path, thorough=thorough)
        write_profile(found, path)
    print(to_json(found) if as_json else "\n".join(profile_text(found, path)))


def _measure(
    machine: "Machine", kernels: str, disks: tuple[Path, ...], path: Path, *, thorough: bool
) -> "Profile":
    from tandem.cli.terminal import load_progress, tell
    from tandem.kernels import native
    from tandem.probes import effort
    from tandem.profiling.profile_file import check_profile_writable, read_profile
    from tandem.spec.errors import ConfigError

    native.choose_isa()  # refuses where there are no compiled kernels to measure
    check_profile_writable(path)
    if path.exists():
        try:
            read_profile(path, machine, kernels)
        except ConfigError as error:
            tell(f"{error.message.rpartition(';')[0]}; measuring anew")
    from tandem.probes.profiler import run_profile

    load = os.getloadavg()[0]
    if load > _BUSY_SHARE * machine.threads:
        tell(f"note: others keep the processor busy (load average {load:.1f}); rates will be low")
    amount = effort.thorough() if thorough else effort.coarse()
    with load_progress() as progress:
        found = run_profile(
            _subject(machine, kernels, disks), amount, thorough=thorough, progress=progress
        )
    for line in found.skipped:
        tell(f"not measured: {line}")
    return found


def _subject(machine: "Machine", kernels: str, disks: tuple[Path, ...]) -> "Subject":
    from tandem.devices.cuda.device import cuda_available, open_cuda
    from tandem.devices.cuda.probe import CudaProbe
    from tandem.models.linear import dequantize, multiply_codes
    from tandem.probes.profiler import Subject
    from tandem.probes.torch_accelerator import CodeMaths, TorchAccelerator

    if cuda_available():
        maths = CodeMaths(multiply_codes, dequantize)
        probed = TorchAccelerator(CudaProbe(open_cuda(0)), maths)
        return Subject(machine, kernels, probed, "", disks)
    reason = "there is none"
    if machine.accelerator != "none":
        reason = f"torch cannot use {machine.accelerator}"
    return Subject(machine, kernels, None, reason, disks)
