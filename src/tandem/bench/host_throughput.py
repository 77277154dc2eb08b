"""Engine suite, part two: prefill and decode on the host alone, against transformers."""

import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.generation import Generated, Generator, Prompts
from tandem.bench.host_bounds import HostLimits, decode_bound, prefill_bound
from tandem.bench.host_model import LlamaShape
from tandem.bench.interleave import interleave, paired_ratio
from tandem.bench.limits import gemm_probe, read_probe
from tandem.bench.records import BenchRow, row_of_samples
from tandem.bench.tandem_generation import TandemGenerator
from tandem.bench.transformers_generation import TransformersGenerator
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec

TANDEM, TRANSFORMERS = "tandem", "transformers"
_READ, _GEMM = "read", "gemm"


@dataclass(frozen=True, slots=True)
class HostCase:
    """One workload: `batch` prompts of equal length, greedy.

    Attributes:
        decode: measure decode after the first tokens; else the time to them.
    """

    batch: int
    prompt_tokens: int
    new_tokens: int
    decode: bool = True

    def __str__(self) -> str:
        if self.decode:
            return f"decode, batch {self.batch}, prompts of {self.prompt_tokens}"
        return f"prefill, batch {self.batch}, prompts of {self.prompt_tokens}"


def decode_cases(batches: Sequence[int], new_tokens: int) -> tuple[HostCase, ...]:
    """Decode after prompts of 32 tokens."""
    return tuple(HostCase(batch, 32, new_tokens) for batch in batches)


PREFILL_512 = HostCase(1, 512, 1, decode=False)


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
        bound, label = self._bound(limits), self._label
        metric = "decode throughput" if self._case.decode else "prefill throughput"
        ratio = paired_ratio(samples[TANDEM], samples[TRANSFORMERS])
        over = f"{metric} over transformers"
        return [
            *(
                row_of_samples(label, name, metric, samples[name], "tokens/s", bound)
                for name in self._engines
            ),
            BenchRow(label, TANDEM, over, ratio.median, "ratio", 1.0, ratio.spread),
            BenchRow(label, TANDEM, f"{over}, lower 95%", ratio.lower_95, "ratio", 1.0),
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
        prompts = self._prompts(len(self._runs[name]))
        run = self._engines[name].generate(prompts, self._case.new_tokens)
        self._runs[name].append(run)
        if self._case.decode:
            return run.decode_tokens_per_s
        return self._case.batch * self._case.prompt_tokens / run.first_s

    def _prompts(self, seed: int) -> Prompts:
        draw, case = random.Random(seed), self._case
        ids = range(self._spec.vocab_size)
        return [draw.choices(ids, k=case.prompt_tokens) for _ in range(case.batch)]

    def _bound(self, limits: HostLimits) -> float:
        case, spec, dtype = self._case, self._spec, self._bench.dtype
        if not case.decode:
            return prefill_bound(spec, dtype, limits, case.prompt_tokens)
        context = case.prompt_tokens + case.new_tokens / 2
        return decode_bound(spec, dtype, limits, case.batch, context)

    def _equal(self) -> float:
        """Share of new tokens that agree; in 16 bits, near ties may fall either way."""
        pairs = [
            (ours, theirs)
            for mine, other in zip(self._runs[TANDEM], self._runs[TRANSFORMERS], strict=True)
            for a, b in zip(mine.token_ids, other.token_ids, strict=True)
            for ours, theirs in zip(a, b, strict=True)
        ]
        return sum(ours == theirs for ours, theirs in pairs) / len(pairs)
