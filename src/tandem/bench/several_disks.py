"""`tandem bench disk` of several disks: weights read from each alone and from all at once."""

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tandem.bench.disk import STEP_TOKENS, capped, gigabytes, probe_of
from tandem.bench.generation import Generated, share_of_equal_tokens
from tandem.bench.host_case import HostCase
from tandem.bench.host_model import LLAMA_30M, LLAMA_246M, LlamaShape, write_checkpoint
from tandem.bench.limits import read_probe
from tandem.bench.records import BenchRow, row_of_samples, rows_of_ratio
from tandem.bench.tandem_generation import TandemGenerator
from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.plan.disk_slots import MOST_DISKS
from tandem.probes.disk_probe import DiskProbe
from tandem.probes.interleave import interleave, paired_ratio
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.precision import Precision

_COPIES, _STRIPES, _HOST = "copies", "stripes", "host"


@dataclass(frozen=True, slots=True)
class SeveralDisksBench:
    """What to measure.

    Attributes:
        folders: one on each disk, the model's own first.
        cap: of host memory, as a share of the weights' bytes.
    """

    shape: LlamaShape
    folders: tuple[Path, ...]
    dtype: DType = DType.BFLOAT16
    cap: float = 0.5
    new_tokens: int = 5
    rounds: int = 5
    mark: str = ""


@dataclass(frozen=True, slots=True)
class DiskRates:
    """Bytes/s of each disk by itself, and of each while all are read."""

    alone: tuple[float, ...]
    at_once: tuple[float, ...]

    @property
    def together(self) -> float:
        """What copies and stripes may give: each disk reads at its own rate."""
        return sum(self.at_once)

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the bytes, with copies."""
        return tuple(rate / self.together for rate in self.at_once)


def full(folders: tuple[Path, ...]) -> SeveralDisksBench:
    """The suite."""
    return SeveralDisksBench(LLAMA_246M, folders)


def quick(folders: tuple[Path, ...]) -> SeveralDisksBench:
    """A smaller model."""
    return SeveralDisksBench(LLAMA_30M, folders, cap=0.75, rounds=3, mark="quick: ")


def folders_of(given: Sequence[Path]) -> tuple[Path, ...]:
    """Those that `--dir` names.

    Raises:
        ConfigError: one is not there or is named twice, or there are too many.
    """
    if len(given) > MOST_DISKS:
        raise ConfigError(
            f"--dir names {len(given)} folders, and layers are read from at most {MOST_DISKS} "
            "disks; leave some out",
            param="dir",
        )
    for number, folder in enumerate(given):
        if not folder.is_dir():
            raise ConfigError(
                f"--dir {folder}: there is no such folder; make it, or name another on the disk "
                "that is to be measured",
                param="dir",
            )
        if any(folder.samefile(other) for other in given[:number]):
            raise ConfigError(
                f"--dir {folder} is named twice; name one folder on each disk", param="dir"
            )
    return tuple(given)


def run_several_disks(
    bench: SeveralDisksBench, report: Callable[[str], None]
) -> tuple[BenchRow, ...]:
    """Rows of each disk alone, of all as copies, and of all as stripes.

    Args:
        report: told in words what is being done.

    Raises:
        ConfigError: a disk cannot be read past the page cache, or the cap is too small.
    """
    with ExitStack() as opened:
        models = [
            Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tandem-bench-", dir=at)))
            for at in bench.folders
        ]
        config = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tandem-bench-")))
        bench.shape.write(config, bench.dtype)
        _write_models(bench, models)
        return _Run(bench, models, config, opened).rows(report)


def _write_models(bench: SeveralDisksBench, models: Sequence[Path]) -> None:
    for model in models:
        bench.shape.write(model, bench.dtype)
    first = write_checkpoint(models[0])
    for model in models[1:]:
        shutil.copyfile(first, model / first.name)
    for model in models:  # nothing is left to be written while others read
        with (model / first.name).open("r+b") as file:
            os.fsync(file.fileno())


class _Run:
    """Engines and probes side by side, and what they gave."""

    def __init__(
        self, bench: SeveralDisksBench, models: Sequence[Path], config: Path, opened: ExitStack
    ) -> None:
        self._bench, self._config = bench, config
        self._spec = bench.shape.write(config, bench.dtype)
        sizes = WeightSizes.of(self._spec, Precision.uniform(bench.dtype))
        self._case = HostCase(1, 32, bench.new_tokens)
        memory = capped(sizes, bench.cap)
        build = partial(TandemGenerator, cpu_memory=memory, max_num_batched_tokens=STEP_TOKENS)
        engines = {
            _alone(number): build(model, 1, stored=True) for number, model in enumerate(models)
        }
        engines[_COPIES] = build(models[0], 1, stored=True, copies=models[1:])
        engines[_STRIPES] = build(config, 1, spool_dirs=bench.folders)
        self._engines = engines
        for engine in engines.values():
            opened.callback(engine.close)
        self._runs: dict[str, list[Generated]] = {name: [] for name in engines}
        on_disk = engines[_COPIES].on_disk
        self._disk_bytes = on_disk * sizes.layer
        self._probes = [probe_of(folder, self._disk_bytes) for folder in bench.folders]
        for probe in self._probes:
            opened.callback(probe.close)
        self._at_once: list[tuple[float, ...]] = []
        self._label = (
            f"{bench.mark}{bench.shape.name}, {bench.dtype}, {self._case}, --host-memory {memory}, "
            f"{on_disk} of {self._spec.num_layers} layers on {len(models)} disks"
        )

    def rows(self, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
        """Measure, and tell."""
        ways = ", ".join(probe.describe() for probe in self._probes)
        report(f"{self._label}: {self._bench.rounds} rounds, the disks probed by {ways}")
        variants: dict[str, Callable[[], float]] = {
            name: partial(self._decode, name) for name in self._engines
        }
        for number, probe in enumerate(self._probes):
            variants[_disk(number)] = partial(probe.measure, self._case.new_tokens)
        variants["at once"] = self._read_at_once
        variants[_HOST] = read_probe()
        samples = interleave(variants, self._bench.rounds)
        at_once = self._at_once[1:]  # the warm-up is thrown away
        rates = DiskRates(
            tuple(statistics.median(samples[_disk(n)]) for n in range(len(self._probes))),
            tuple(statistics.median(each) for each in zip(*at_once, strict=True)),
        )
        return (
            *self._of_engines(samples, rates, [DiskRates(each, each) for each in at_once]),
            *self._of_shares(rates),
            *self._of_tokens(),
            *self._of_probes(samples, at_once),
        )

    def _decode(self, name: str) -> float:
        runs = self._runs[name]
        prompts = self._case.prompts(len(runs), self._spec.vocab_size)
        runs.append(self._engines[name].generate(prompts, self._case.new_tokens))
        return runs[-1].decode_tokens_per_s

    def _read_at_once(self) -> float:
        """Bytes/s of all disks, each of which reads its part of what the engine reads, or more."""
        times = -(-self._case.new_tokens // len(self._probes))
        with ThreadPoolExecutor(len(self._probes)) as readers:
            found = readers.map(lambda probe: DiskProbe.measure(probe, times), self._probes)
            self._at_once.append(tuple(found))
        return sum(self._at_once[-1])

    def _of_engines(
        self,
        samples: Mapping[str, Sequence[float]],
        rates: DiskRates,
        rounds: Sequence[DiskRates],
    ) -> list[BenchRow]:
        """Of each engine, beside the rate of what it reads from."""
        memory_s = self._case.bytes_read(self._spec, self._bench.dtype) / statistics.median(
            samples[_HOST]
        )
        of_disks: dict[str, tuple[float, Sequence[float]]] = {
            _alone(n): (rate, samples[_disk(n)]) for n, rate in enumerate(rates.alone)
        }
        for name in (_COPIES, _STRIPES):
            of_disks[name] = rates.together, [each.together for each in rounds]
        rows: list[BenchRow] = []
        for name, (disk, disk_samples) in of_disks.items():
            chain = 1.0 / (self._disk_bytes / disk + memory_s)
            decoded = samples[name]
            read = [each * self._disk_bytes for each in decoded]
            label, ratio = self._label, paired_ratio(read, disk_samples)
            variant, metric = _tandem(name), "weights' rate over the disks'"
            rows += [
                row_of_samples(label, variant, self._case.metric, decoded, "tokens/s", chain),
                row_of_samples(label, variant, "weights read", gigabytes(read), "GB/s", disk / 1e9),
                *rows_of_ratio(label, variant, metric, ratio),
            ]
            if name in (_COPIES, _STRIPES):
                gain = paired_ratio(decoded, samples[_alone(0)])
                metric = "throughput over disk 1 alone"
                bound = disk / rates.alone[0]
                rows.append(
                    BenchRow(label, variant, metric, gain.median, "ratio", bound, gain.spread)
                )
        return rows

    def _of_shares(self, rates: DiskRates) -> list[BenchRow]:
        """Of the bytes that came from each copy, beside the disk's share of the rates."""
        read = self._engines[_COPIES].bytes_read()
        return [
            BenchRow(
                self._label,
                _tandem(_COPIES),
                f"share of bytes from {_disk(number)}",
                size / sum(read),
                "share",
                expected,
            )
            for number, (size, expected) in enumerate(zip(read, rates.shares, strict=True))
        ]

    def _of_tokens(self) -> list[BenchRow]:
        resident = TandemGenerator(self._config, 1)
        try:
            expected = [
                resident.generate(
                    self._case.prompts(number, self._spec.vocab_size), self._case.new_tokens
                )
                for number in range(self._bench.rounds + 1)
            ]
        finally:
            resident.close()
        metric = "tokens equal to all layers in memory"
        return [
            BenchRow(
                self._label,
                _tandem(name),
                metric,
                share_of_equal_tokens(runs, expected),
                "share",
                1.0,
            )
            for name, runs in self._runs.items()
        ]

    def _of_probes(
        self, samples: Mapping[str, Sequence[float]], at_once: Sequence[tuple[float, ...]]
    ) -> list[BenchRow]:
        label, rows = self._label, list[BenchRow]()
        for number, together in enumerate(zip(*at_once, strict=True)):
            name = _disk(number)
            rows += [
                row_of_samples(label, name, "reading", gigabytes(samples[name]), "GB/s"),
                row_of_samples(label, name, "reading, all at once", gigabytes(together), "GB/s"),
            ]
        every = gigabytes([sum(each) for each in at_once])
        return [
            *rows,
            row_of_samples(label, "disks", "reading, all at once", every, "GB/s"),
            row_of_samples(label, _HOST, "reading", gigabytes(samples[_HOST]), "GB/s"),
        ]


def _disk(number: int) -> str:
    return f"disk {number + 1}"


def _alone(number: int) -> str:
    return f"{_disk(number)} alone"


def _tandem(name: str) -> str:
    return f"tandem, {name}"
