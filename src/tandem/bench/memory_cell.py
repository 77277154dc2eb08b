"""One engine of the memory suite, in a process of its own: what it predicted, and what it took.

`python -m tandem.bench.memory_cell` reads a cell as JSON and prints its figures.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tandem.bench.control_group import ControlGroup, mapped_elsewhere_bytes
from tandem.bench.host_model import LlamaShape
from tandem.bench.memory_cells import DEMO, MemoryCell
from tandem.engine.building.core_of import core_of
from tandem.engine.building.parts import EngineParts, build_parts
from tandem.engine.core import EngineCore
from tandem.engine.stats import EngineStats, MemoryRow
from tandem.plan.program import Queue
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import TandemError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class PlaceFigures:
    """One memory: the ledger's sum, and the peak by the word of its driver or the kernel."""

    place: str
    predicted_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class CellFigures:
    """What a cell took.

    Attributes:
        places: the accelerator, if there is one, and the process, in which an emulated one lies;
            the process's control group, if it has one of its own, with what the process maps of
            files that others are charged for.
        labels: the ledger's rows.
        mapped_elsewhere_bytes: files that the process maps at the end and that another group than
            its own is charged for.
    """

    places: tuple[PlaceFigures, ...]
    labels: tuple[MemoryRow, ...]
    mapped_elsewhere_bytes: int


def measure_cell(cell: MemoryCell, *, grouped: bool = False) -> CellFigures:
    """Build the engine in a new process, fill its pages, run its largest steps.

    Args:
        grouped: in a control group of its own.

    Raises:
        TandemError: it cannot be built, or the group cannot be made.
    """
    command = [sys.executable, "-m", __spec__.name]
    if not grouped:
        return _run(cell, command)
    group = ControlGroup(f"tandem-bench-{os.getpid()}")
    try:
        figures = _run(cell, group.command(*command))
        peak = group.peak_bytes()
    finally:
        group.remove()
    process = figures.places[-1]
    held = PlaceFigures(
        "control group", process.predicted_bytes, peak + figures.mapped_elsewhere_bytes
    )
    return replace(figures, places=(*figures.places, held))


def _run(cell: MemoryCell, command: list[str]) -> CellFigures:
    done = subprocess.run(
        command, input=json.dumps(asdict(cell)), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise TandemError(f"the cell '{cell}' failed: {last}")
    fields = json.loads(done.stdout)
    return CellFigures(
        tuple(PlaceFigures(**place) for place in fields["places"]),
        tuple(MemoryRow(**label) for label in fields["labels"]),
        fields["mapped_elsewhere_bytes"],
    )


def build_and_fill(cell: MemoryCell) -> CellFigures:
    """In this process, which should have done nothing else."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as folder:
        parts = build_parts(_config(cell, Path(folder)))
        _fill_pages(parts)
        parts.run_largest_steps()
        core = core_of(parts)
        try:
            _run_longest(core, parts.memory.plan.max_model_len)
            return _figures(core.stats())
        finally:
            core.close()


def _config(cell: MemoryCell, folder: Path) -> EngineConfig:
    if cell.shape is None:
        return EngineConfig(DEMO, **cell.options)
    options = {"dtype": "bfloat16", **cell.options}
    cell.shape.write(folder, DType(options["dtype"]))
    return EngineConfig(str(folder), spool_dir=str(folder), **options)


def _fill_pages(parts: EngineParts) -> None:
    """Use every page, as a full cache does; until then the system has given no memory for them."""
    kv = parts.assembled.machine.kv
    for tier, queue in ((Tier.DEVICE, Queue.ACCEL), (Tier.HOST, Queue.CPU)):
        kv.all_layers(tier, queue).zero_()


def _run_longest(core: EngineCore, max_model_len: int) -> None:
    """A request of as many tokens as there may be: what attention takes grows with its keys."""
    params = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True)
    core.add_request(EngineRequest("longest", (0,) * (max_model_len - 2), params))
    while core.has_work():
        core.step()


def _figures(stats: EngineStats) -> CellFigures:
    totals = {each.location: each for each in stats.memory_totals}
    host, device = totals["host"], totals.get("device")
    on_host = host.predicted_bytes + (0 if device is None else device.predicted_bytes)
    places = [PlaceFigures("process", on_host, host.peak_bytes or 0)]
    if device is not None:
        places.insert(0, PlaceFigures("device", device.predicted_bytes, device.peak_bytes or 0))
    return CellFigures(tuple(places), stats.memory, mapped_elsewhere_bytes())


def _main() -> None:
    fields = json.load(sys.stdin)
    shape = fields["shape"]
    cell = MemoryCell(None if shape is None else LlamaShape(**shape), fields["options"])
    print(json.dumps(asdict(build_and_fill(cell))))


if __name__ == "__main__":
    _main()
