"""Rows and lines of what requests wait that come over time."""

from collections.abc import Iterator, Mapping

from tandem.bench.online.arrivals import Point
from tandem.bench.online.suite import CellOutcome
from tandem.bench.records import BenchRow
from tandem.simulator.latencies import Percentiles

FIRST, EACH = "first token", "time per token"


def executed_latencies(point: Point) -> Mapping[str, Percentiles]:
    """Over the requests of a run."""
    found = point.served.latencies
    return {FIRST: Percentiles.of(found.ttft_s), EACH: Percentiles.of(found.tpot_s)}


def simulated_latencies(point: Point) -> Mapping[str, Percentiles]:
    """The same by the simulator."""
    tpot = point.simulated.tpot
    assert tpot is not None, "requests of a load have at least two tokens"
    return {FIRST: point.simulated.ttft, EACH: tpot}


def latency_rows(outcome: CellOutcome) -> Iterator[BenchRow]:
    """A case per rate: each percentile, and what the simulator had said of the median."""
    for point in outcome.points:
        case = f"{outcome.cell}; {_rate(point)}"
        variant = f"{outcome.bed.word} {' = '.join(point.policies)}"
        served = point.served.tokens_per_s
        asked = point.requests_per_s * outcome.cell.load.generated_tokens
        yield BenchRow(case, variant, "throughput", served, "tokens/s", asked)
        said = simulated_latencies(point)
        for what, found in executed_latencies(point).items():
            spread = (found.p50_s, found.p99_s)
            yield BenchRow(case, variant, f"{what}, p50", found.p50_s, "s", None, spread)
            yield BenchRow(case, variant, f"{what}, p90", found.p90_s, "s")
            yield BenchRow(case, variant, f"{what}, p99", found.p99_s, "s")
            ratio = said[what].p50_s / found.p50_s
            yield BenchRow(case, variant, f"{what}, simulated over executed", ratio, "ratio", 1.0)


def latency_lines(outcome: CellOutcome) -> Iterator[str]:
    """A line per plan below each rate."""
    before = None
    for point in outcome.points:
        if point.share != before:
            before = point.share
            yield f"  {_rate(point)}: 50th, 90th and 99th percentile, simulated in brackets"
        said = simulated_latencies(point)
        cells = [
            f"{what} {_times(found)} ({_times(said[what])}) ms"
            for what, found in executed_latencies(point).items()
        ]
        yield f"    {', '.join(point.policies)}: {'; '.join(cells)}"


def _rate(point: Point) -> str:
    return f"{point.requests_per_s:.3g} requests/s, {point.share:.0%} of gpu-only's"


def _times(found: Percentiles) -> str:
    return " ".join(f"{1e3 * each:.0f}" for each in (found.p50_s, found.p90_s, found.p99_s))
