"""`tandem bench disk`: decode on the host alone with weights on disk, against the disk's rate."""

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.generation import Generated, share_of_equal_tokens
from tandem.bench.host_case import HostCase
from tandem.bench.host_model import LLAMA_30M, LLAMA_246M, LlamaShape
from tandem.bench.limits import read_probe
from tandem.bench.records import BenchRow, row_of_samples
from tandem.bench.tandem_generation import TandemGenerator
from tandem.engine.weight_placement import WeightSizes
from tandem.probes.beside import beside
from tandem.probes.disk_probe import DiskProbe
from tandem.probes.interleave import interleave, paired_ratio
from tandem.spec.dtype import DType
from tandem.spec.precision import Precision

SUITE = "disk"
_TANDEM, _DISK, _READ, _BESIDE = "tandem", "disk", "read", "disk beside reads"


@dataclass(frozen=True, slots=True)
class DiskBench:
    """What to measure.

    Attributes:
        directory: on the disk in question.
        resident: for each case, every how many-th layer stays in memory; 0: none.
        probe_bytes: of the file that the disk's rate is probed with.
    """

    shape: LlamaShape
    directory: Path
    dtype: DType = DType.BFLOAT16
    resident: tuple[int, ...] = (0, 2)
    new_tokens: int = 9
    rounds: int = 7
    probe_bytes: int = 1 << 30
    mark: str = ""


def full(directory: Path) -> DiskBench:
    """The suite."""
    return DiskBench(LLAMA_246M, directory)


def quick(directory: Path) -> DiskBench:
    """A smaller model."""
    return DiskBench(
        LLAMA_30M, directory, resident=(0,), rounds=3, probe_bytes=256 << 20, mark="quick: "
    )


def run_disk(bench: DiskBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """Rows of all cases.

    Args:
        report: told in words what is being done.

    Raises:
        ConfigError: the folder's disk cannot be read past the page cache.
    """
    report(f"probing the disk of {bench.directory}")
    probe = DiskProbe(bench.directory, bench.probe_bytes)
    report(f"read by {probe.describe()}")
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
            model = Path(name)
            bench.shape.write(model, bench.dtype)
            rows: list[BenchRow] = []
            for each in bench.resident:
                rows += _measure(bench, each, model, probe, report)
            return tuple(rows)
    finally:
        probe.close()


def _measure(
    bench: DiskBench, each: int, model: Path, probe: DiskProbe, report: Callable[[str], None]
) -> list[BenchRow]:
    spec = bench.shape.write(model, bench.dtype)
    sizes = WeightSizes.of(spec, Precision.uniform(bench.dtype))
    on_disk = [i for i in range(spec.num_layers) if not each or i % each != each - 1]
    case = HostCase(1, 32, bench.new_tokens)
    label = f"{bench.mark}{bench.shape.name}, {bench.dtype}, {case}, {len(on_disk)} of "
    label += f"{spec.num_layers} layers on disk"
    report(f"{label}: {bench.rounds} rounds")
    engine = TandemGenerator(model, 1, _placement(model, on_disk), bench.directory)
    runs: list[Generated] = []

    def decode() -> float:
        runs.append(engine.generate(case.prompts(len(runs), spec.vocab_size), case.new_tokens))
        return runs[-1].decode_tokens_per_s

    try:
        reads = read_probe()
        probes = {_DISK: probe.measure, _READ: reads, _BESIDE: beside(probe.measure, reads)}
        samples = interleave({_TANDEM: decode, **probes}, bench.rounds)
    finally:
        engine.close()
    resident = TandemGenerator(model, 1)
    try:
        expected = [
            resident.generate(case.prompts(i, spec.vocab_size), case.new_tokens)
            for i in range(len(runs))
        ]
    finally:
        resident.close()
    disk, read = statistics.median(samples[_DISK]), statistics.median(samples[_READ])
    disk_bytes = len(on_disk) * sizes.layer
    memory_bytes = case.bytes_read(spec, bench.dtype)
    chain = 1.0 / (disk_bytes / disk + memory_bytes / read)
    rates = [sample * disk_bytes for sample in samples[_TANDEM]]
    ratio = paired_ratio(rates, samples[_DISK])
    share = "weights' rate over the disk's"
    return [
        row_of_samples(label, _TANDEM, case.metric, samples[_TANDEM], "tokens/s", chain),
        row_of_samples(label, _TANDEM, "weights read", _gigabytes(rates), "GB/s", disk / 1e9),
        BenchRow(label, _TANDEM, share, ratio.median, "ratio", 1.0, ratio.spread),
        BenchRow(label, _TANDEM, f"{share}, lower 95%", ratio.lower_95, "ratio", 1.0),
        BenchRow(
            label,
            _TANDEM,
            "tokens equal to all layers in memory",
            share_of_equal_tokens(runs, expected),
            "share",
            1.0,
        ),
        row_of_samples(label, "disk", "reading", _gigabytes(samples[_DISK]), "GB/s"),
        row_of_samples(
            label, "disk", "reading, beside the host's", _gigabytes(samples[_BESIDE]), "GB/s"
        ),
        row_of_samples(label, "host", "reading", _gigabytes(samples[_READ]), "GB/s"),
    ]


def _gigabytes(samples: Sequence[float]) -> list[float]:
    return [sample / 1e9 for sample in samples]


def _placement(directory: Path, on_disk: list[int]) -> Path:
    path = directory / "placement.json"
    runs = [{"first_layer": i, "last_layer": i, "home": "disk"} for i in on_disk]
    path.write_text(json.dumps({"layers": runs}), encoding="utf-8")
    return path
