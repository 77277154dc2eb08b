"""How much the host could add to the GPU alone, and how much of that was added."""

from statistics import median

from benchmarks.gpu.findings import Findings

from tandem.bench.records import BenchRow
from tandem.cost.apex.overlap import WORTH_CAPTURING, attainable_gain

LEAST_CAPTURED = 0.5
"""Of the gain that the bound allows: the target, where the bound is worth capturing."""
GAIN, BOUND = "gain captured", "bound of the gain"
_ALLOWED_ERROR = 0.1
_EXACT = 1.0


def host_bound(alone_per_s: float, rows: float, row_bytes: float, read_bytes_per_s: float) -> float:
    """Tokens/s of `1 + B_c T / KV` times the accelerator alone: none decodes faster if all weights
    are resident and the accelerator's memory holds no more rows.

    Args:
        alone_per_s: of the accelerator alone, executed. rows: that run on it at once.
        row_bytes: of KV, in the mean. read_bytes_per_s: by the host, as profiled.
    """
    return alone_per_s * (
        1 + attainable_gain(read_bytes_per_s, rows / alone_per_s, rows * row_bytes)
    )


def gain_rows(case: str, who: str, over_alone: float, bound: float) -> list[BenchRow]:
    """What could be gained; where that is worth it, the share of it that was.

    Args:
        over_alone: throughput over the accelerator alone's, paired or of medians.
        bound: what it cannot exceed.
    """
    rows = [BenchRow(case, who, BOUND, bound, "ratio")]
    if bound >= WORTH_CAPTURING:
        share = max(0.0, over_alone - 1) / (bound - 1)
        rows.append(BenchRow(case, who, GAIN, share, "share", LEAST_CAPTURED))
    return rows


def executed_per_s(found: Findings, case: str, who: str) -> float | None:
    """Throughput that was found before, perhaps in an earlier call; None if it was not."""
    rows = (row for row in found.rows if (row.case, row.variant) == (case, who))
    return next((row.value for row in rows if row.metric == "throughput"), None)


def median_error(found: Findings, case: str, source: str) -> BenchRow | None:
    """Of all ratios of a source's figures to those executed; None if there are none.

    Args:
        source: "predicted" or "simulated".
    """
    metric = ratio_metric(source)
    ratios = [row.value for row in found.rows if row.case == case and row.metric == metric]
    if not ratios:
        return None
    error = median(abs(each - 1) for each in ratios)
    return BenchRow(case, "all", f"median error, {source}", error, "ratio - 1", _ALLOWED_ERROR)


def ratio_row(case: str, who: str, source: str, expected_per_s: float, executed: float) -> BenchRow:
    """One figure over what came of it."""
    ratio = expected_per_s / executed
    return BenchRow(case, who, ratio_metric(source), ratio, "ratio", _EXACT)


def ratio_metric(source: str) -> str:
    """The name of such a row's metric."""
    return f"{source} over executed"
