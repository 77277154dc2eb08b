"""Engine suite, part two: prefill and decode on the host alone, against transformers."""

import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.generation import Generated, Generator, share_of_equal_tokens
from tandem.bench.host_bounds import HostLimits
from tandem.bench.host_case import HostCase
from tandem.bench.host_model import LlamaShape
from tandem.bench.limits import gemm_probe, read_probe
from tandem.bench.records import BenchRow, row_of_samples, rows_of_ratio
from tandem.bench.tandem_generation import TandemGenerator
from tandem.bench.transformers_generation import TransformersGenerator
from tandem.probes.interleave import interleave, paired_ratio
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec

TANDEM, TRANSFORMERS = "tandem", "transformers"
_READ, _GEMM = "read", "gemm"


@dataclass(frozen=True, slots=True)
class HostBench:
    """What to measure, in `rounds` interleaved pairs per case."""

    shape: LlamaShape
    dtype: DType
    cases: tuple[HostCase, ...]
    rounds: int


def measure_host(bench: HostBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """Rows of all cases: both engines, their ratio, and whether their tokens agree."""
    with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
        directory = Path(name)
        spec = bench.shape.write(directory, bench.dtype)
        report(f"loading the {bench.shape.name}, {bench.dtype}")
        tandem = TandemGenerator(directory, max(case.batch for case in bench.cases))
        try:
            engines = {TANDEM: tandem, TRANSFORMERS: TransformersGenerator(directory)}
            rows: list[BenchRow] = []
            for case in bench.cases:
                report(f"{bench.shape.name}, {bench.dtype}, {case}: {bench.rounds} pairs")
                rows += _CaseRun(bench, case, spec, engines).rows()
            return tuple(rows)
        finally:
            tandem.close()


class _CaseRun:
    """Runs one case on both engines, the probes between them."""

    def __init__(
        self,
        bench: HostBench,
        case: HostCase,
        spec: ModelSpec,
        engines: Mapping[str, Generator],
    ) -> None:
        self._bench, self._case, self._spec, self._engines = bench, case, spec, engines
        self._runs: dict[str, list[Generated]] = {name: [] for name in engines}

    def rows(self) -> list[BenchRow]:
        """Measure, and hold the rates against the limits probed meanwhile."""
        measures: dict[str, Callable[[], float]] = {
            name: lambda name=name: self._measure(name) for name in self._engines
        }
        samples = interleave(
            measures | {_READ: read_probe(), _GEMM: gemm_probe()}, self._bench.rounds
        )
        limits = HostLimits(statistics.median(samples[_READ]), statistics.median(samples[_GEMM]))
        bound = self._case.bound(self._spec, self._bench.dtype, limits)
        label, metric = self._label, self._case.metric
        ratio = paired_ratio(samples[TANDEM], samples[TRANSFORMERS])
        over = f"{metric} over transformers"
        return [
            *(
                row_of_samples(label, name, metric, samples[name], "tokens/s", bound)
                for name in self._engines
            ),
            *rows_of_ratio(label, TANDEM, over, ratio),
            BenchRow(label, TANDEM, "tokens equal to transformers", self._equal(), "share", 1.0),
            row_of_samples(label, "host", "reading", [s / 1e9 for s in samples[_READ]], "GB/s"),
            row_of_samples(
                label, "host", "fp32 GEMM", [s / 1e9 for s in samples[_GEMM]], "GFLOP/s"
            ),
        ]

    @property
    def _label(self) -> str:
        return f"{self._bench.shape.name}, {self._bench.dtype}, {self._case}"

    def _measure(self, name: str) -> float:
        # Both engines meet the same prompts in the same round; no round repeats another's.
        prompts = self._case.prompts(len(self._runs[name]), self._spec.vocab_size)
        run = self._engines[name].generate(prompts, self._case.new_tokens)
        self._runs[name].append(run)
        return self._case.tokens_per_s(run)

    def _equal(self) -> float:
        return share_of_equal_tokens(self._runs[TANDEM], self._runs[TRANSFORMERS])
