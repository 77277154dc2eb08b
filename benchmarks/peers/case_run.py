"""One workload on all engines in turns, the probes of the machine's limits between them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.peers.engines import LLAMA_CPP, OURS, Engine
from benchmarks.peers.line_protocol import Worker

from tandem.bench.generation import Generated, share_of_equal_tokens
from tandem.bench.host_bounds import HostLimits
from tandem.bench.host_case import HostCase
from tandem.bench.limits import gemm_probe, read_probe
from tandem.bench.records import BenchRow, row_of_samples, rows_of_ratio
from tandem.probes.interleave import interleave, paired_ratio
from tandem.spec.model import ModelSpec

_READ, _GEMM = "read", "gemm"
# Alone, a request is served by bandwidth only, and the peer is near its limit.
_ALONE_TARGET = 0.9


class IdleTime:
    """Processor time that engines take while another one runs: they must sleep."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self._workers = workers
        self._taken_s = dict.fromkeys(workers, 0.0)
        self._passed_s = dict.fromkeys(workers, 0.0)

    def around(self, running: str, run: Callable[[], Generated]) -> Generated:
        """Do `run`, watching everybody but `running`."""
        others = [name for name in self._workers if name != running]
        began = time.perf_counter()
        before = {name: self._workers[name].processor_s() for name in others}
        result = run()
        passed = time.perf_counter() - began
        for name in others:
            self._taken_s[name] += self._workers[name].processor_s() - before[name]
            self._passed_s[name] += passed
        return result

    def cores(self) -> dict[str, float]:
        """By engine, cores kept busy on average; the time in which nobody else ran counts not."""
        return {
            name: self._taken_s[name] / passed for name, passed in self._passed_s.items() if passed
        }


class CaseRun:
    """Runs one case; `label` begins the case of every row."""

    def __init__(
        self,
        case: HostCase,
        label: str,
        spec: ModelSpec,
        engines: Sequence[Engine],
        workers: Mapping[str, Worker],
        idle: IdleTime,
    ) -> None:
        self._case, self._label, self._spec = case, f"{label}, {case}", spec
        self._engines, self._workers, self._idle = engines, workers, idle
        self._runs: dict[str, list[Generated]] = {engine.name: [] for engine in engines}

    def rows(self, rounds: int) -> list[BenchRow]:
        """Measure; rates beside their bounds, and ours over everybody else's."""
        measures: dict[str, Callable[[], float]] = {
            name: lambda name=name: self._measure(name) for name in self._runs
        }
        samples = interleave(measures | {_READ: read_probe(), _GEMM: gemm_probe()}, rounds)
        limits = HostLimits(statistics.median(samples[_READ]), statistics.median(samples[_GEMM]))
        return [
            *(self._rate_row(engine, samples[engine.name], limits) for engine in self._engines),
            *(
                row
                for ours in self._names(ours=True)
                for peer in self._names(ours=False)
                for row in self._ratio_rows(ours, peer, samples)
            ),
            *self._agreement_rows(),
            self._limit_row("reading", samples[_READ], "GB/s"),
            self._limit_row("fp32 GEMM", samples[_GEMM], "GFLOP/s"),
        ]

    def _measure(self, name: str) -> float:
        # All engines meet the same prompts in the same round; no round repeats another's.
        prompts = self._case.prompts(len(self._runs[name]), self._spec.vocab_size)
        worker, new_tokens = self._workers[name], self._case.new_tokens
        run = self._idle.around(name, lambda: worker.generate(prompts, new_tokens))
        self._runs[name].append(run)
        return self._case.tokens_per_s(run)

    def _names(self, ours: bool) -> list[str]:
        return [name for name in self._runs if (name in OURS) == ours]

    def _rate_row(self, engine: Engine, samples: Sequence[float], limits: HostLimits) -> BenchRow:
        bound = None
        if engine.dtype is not None:
            bound = self._case.bound(self._spec, engine.dtype, limits)
        return row_of_samples(
            self._label, engine.name, self._case.metric, samples, "tokens/s", bound
        )

    def _ratio_rows(
        self, ours: str, peer: str, samples: Mapping[str, Sequence[float]]
    ) -> list[BenchRow]:
        ratio = paired_ratio(samples[ours], samples[peer])
        metric = f"{self._case.metric} over {peer}"
        return rows_of_ratio(self._label, ours, metric, ratio, self._target(peer))

    def _target(self, peer: str) -> float | None:
        if peer != LLAMA_CPP:
            return None
        return _ALONE_TARGET if self._case.decode and self._case.batch == 1 else 1.0

    def _agreement_rows(self) -> list[BenchRow]:
        """Tokens equal to the first engine's; other formats of the weights give others."""
        first, *others = self._runs
        return [
            BenchRow(
                self._label,
                name,
                f"tokens equal to {first}",
                share_of_equal_tokens(self._runs[name], self._runs[first]),
                "share",
            )
            for name in others
        ]

    def _limit_row(self, metric: str, samples: Sequence[float], unit: str) -> BenchRow:
        return row_of_samples(self._label, "host", metric, [s / 1e9 for s in samples], unit)
