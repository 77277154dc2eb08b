"""`tandem bench disk`: decode on the host alone with weights on disk, against the disk's rate.

Of several disks: `several_disks.py`.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tandem.bench.generation import Generated, share_of_equal_tokens
from tandem.bench.host_case import HostCase
from tandem.bench.host_model import LLAMA_30M, LLAMA_246M, LlamaShape
from tandem.bench.limits import read_probe
from tandem.bench.records import BenchRow, row_of_samples, rows_of_ratio
from tandem.bench.tandem_generation import TandemGenerator
from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.probes.beside import beside
from tandem.probes.disk_probe import PROBE_STEP_BYTES, DiskProbe
from tandem.probes.interleave import interleave, paired_ratio
from tandem.spec.dtype import DType
from tandem.spec.precision import Precision
from tandem.spec.units import MIB

SUITE = "disk"
STEP_TOKENS = 64  # of a step, so that its activations take little of the memory
_TANDEM, _DISK, _READ, _BESIDE = "tandem", "disk", "read", "disk beside reads"


@dataclass(frozen=True, slots=True)
class DiskBench:
    """What to measure.

    Attributes:
        directory: on the disk in question.
        caps: of host memory for each case, as shares of the weights' bytes.
    """

    shape: LlamaShape
    directory: Path
    dtype: DType = DType.BFLOAT16
    caps: tuple[float, ...] = (0.5, 0.75)
    new_tokens: int = 9
    rounds: int = 7
    mark: str = ""


def full(directory: Path) -> DiskBench:
    """The suite."""
    return DiskBench(LLAMA_246M, directory)


def quick(directory: Path) -> DiskBench:
    """A smaller model."""
    return DiskBench(LLAMA_30M, directory, caps=(0.75,), rounds=3, mark="quick: ")


def run_disk(bench: DiskBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """Rows of all cases.

    Args:
        report: told in words what is being done.

    Raises:
        ConfigError: the folder's disk cannot be read past the page cache, or a cap is too small.
    """
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        model = Path(name)
        rows: list[BenchRow] = []
        for cap in bench.caps:
            rows += _measure(bench, cap, model, report)
        return tuple(rows)


def _measure(
    bench: DiskBench, cap: float, model: Path, report: Callable[[str], None]
) -> list[BenchRow]:
    spec = bench.shape.write(model, bench.dtype)
    sizes = WeightSizes.of(spec, Precision.uniform(bench.dtype))
    case = HostCase(1, 32, bench.new_tokens)
    memory = capped(sizes, cap)
    engine = TandemGenerator(model, 1, memory, STEP_TOKENS, [bench.directory])
    label = f"{bench.mark}{bench.shape.name}, {bench.dtype}, {case}, --host-memory {memory}, "
    label += f"{engine.on_disk} of {spec.num_layers} layers on disk"
    disk_bytes = engine.on_disk * sizes.layer
    runs: list[Generated] = []

    def decode() -> float:
        runs.append(engine.generate(case.prompts(len(runs), spec.vocab_size), case.new_tokens))
        return runs[-1].decode_tokens_per_s

    with ExitStack() as opened:
        opened.callback(engine.close)
        probe = probe_of(bench.directory, disk_bytes)
        opened.callback(probe.close)
        report(f"{label}: {bench.rounds} rounds, the disk probed by {probe.describe()}")
        # As many bytes as the engine reads: disks that are lent out allow some at a higher rate.
        reads, disk_reads = read_probe(), partial(probe.measure, case.new_tokens)
        probes = {_DISK: disk_reads, _READ: reads, _BESIDE: beside(disk_reads, reads)}
        samples = interleave({_TANDEM: decode, **probes}, bench.rounds)
    resident = TandemGenerator(model, 1)
    try:
        expected = [
            resident.generate(case.prompts(i, spec.vocab_size), case.new_tokens)
            for i in range(len(runs))
        ]
    finally:
        resident.close()
    disk, read = statistics.median(samples[_DISK]), statistics.median(samples[_READ])
    memory_bytes = case.bytes_read(spec, bench.dtype)
    chain = 1.0 / (disk_bytes / disk + memory_bytes / read)
    rates = [sample * disk_bytes for sample in samples[_TANDEM]]
    ratio = paired_ratio(rates, samples[_DISK])
    share = "weights' rate over the disk's"
    return [
        row_of_samples(label, _TANDEM, case.metric, samples[_TANDEM], "tokens/s", chain),
        row_of_samples(label, _TANDEM, "weights read", gigabytes(rates), "GB/s", disk / 1e9),
        *rows_of_ratio(label, _TANDEM, share, ratio),
        BenchRow(
            label,
            _TANDEM,
            "tokens equal to all layers in memory",
            share_of_equal_tokens(runs, expected),
            "share",
            1.0,
        ),
        row_of_samples(label, "disk", "reading", gigabytes(samples[_DISK]), "GB/s"),
        row_of_samples(
            label, "disk", "reading, beside the host's", gigabytes(samples[_BESIDE]), "GB/s"
        ),
        row_of_samples(label, "host", "reading", gigabytes(samples[_READ]), "GB/s"),
    ]


def capped(sizes: WeightSizes, share: float) -> str:
    """Host memory for a share of the weights' bytes."""
    return f"{round(share * (sizes.outside + sizes.layers * sizes.layer) / MIB)}MiB"


def probe_of(directory: Path, size_bytes: int) -> DiskProbe:
    """Of a file as large as the layers on disk: what lies below a disk (its own cache, a host's)
    holds little files whole that are read again and again, and large ones not.
    """
    return DiskProbe(directory, -(-size_bytes // PROBE_STEP_BYTES) * PROBE_STEP_BYTES)


def gigabytes(samples: Sequence[float]) -> list[float]:
    """GB/s of bytes/s."""
    return [sample / 1e9 for sample in samples]
