"""Jobs in turns with the GPU alone."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.gain import gain_rows, host_bound
from benchmarks.gpu.jobs import JobRate
from benchmarks.gpu.kept import ALONE
from benchmarks.gpu.online_bounds import FullPool
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.whole_jobs import PEER

from tandem.bench.records import row_of_samples, rows_of_ratio
from tandem.probes.interleave import paired_ratio

NO_WORSE = 0.98
"""Than the GPU alone: the target of `auto`."""
_OF_PEER = 0.95  # the target of the GPU alone

Run = Callable[[], JobRate]


@dataclass(frozen=True, slots=True)
class Pair:
    """What everybody is compared with: the GPU alone.

    Attributes:
        bound: of its rate, in tokens/s.
        full: its pool of KV and who could read more; None where no bound of the gain holds.
    """

    case: str
    alone: Run
    bound: float
    scale: Scale
    full: FullPool | None


def compare(pair: Pair, name: str, run: Run, limit: Deadline, found: Findings) -> float:
    """Both in turns; the first round of each is thrown away. Seconds of its longest job."""
    warm = pair.alone(), run()
    ours: list[JobRate] = []
    others: list[JobRate] = []
    for _ in limit.rounds(pair.scale.rounds):
        ours.append(pair.alone())
        others.append(run())
    if not all(rate.complete for rate in (*warm, *ours, *others)):
        found.note(f"{pair.case}: jobs of {ALONE} or of {name} were cut short")
    alone, its = [[rate.tokens_per_s for rate in rates] for rates in (ours, others)]
    if name == PEER:
        paired, what, target = paired_ratio(alone, its), f"{ALONE} over {name}", _OF_PEER
    else:
        paired, what, target = paired_ratio(its, alone), f"{name} over {ALONE}", NO_WORSE
    case = pair.case
    found.add(
        row_of_samples(
            case, f"{ALONE}, beside {name}", "throughput", alone, "tokens/s", pair.bound
        ),
        row_of_samples(case, name, "throughput", its, "tokens/s"),
        *rows_of_ratio(case, what, "throughput, paired", paired, target),
    )
    if name != PEER and pair.full is not None:
        rate, full = median(alone), pair.full
        most = host_bound(rate, full.rows, full.row_bytes, full.read_bytes_per_s)
        found.add(*gain_rows(case, what, paired.median, most / rate))
    return max(rate.wall_s for rate in others)
