"""`tandem bench engine`: the scheduler's own time and memory, and the host alone against
transformers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tandem.bench.host_case import PREFILL_512, decode_cases
from tandem.bench.host_model import LLAMA_30M, LLAMA_246M
from tandem.bench.host_throughput import HostBench, measure_host
from tandem.bench.records import BenchRow
from tandem.bench.scheduler_growth import GrowthBench, measure_growth
from tandem.bench.scheduler_time import SchedulerBench, measure_scheduler
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError

SUITE = "engine"
QUICK_MARK = "quick: "

# Claims rest on seven pairs or more.
_PAIRS = 7
_PAIRS_BF16 = 3


Part = Literal["scheduler", "growth", "host"]


@dataclass(frozen=True, slots=True)
class EngineBench:
    """All parts of the suite; `mark` begins every case.

    Attributes:
        parts: those to run. Growth takes minutes, and is run when it is asked for.
    """

    scheduler: SchedulerBench
    growth: GrowthBench
    hosts: tuple[HostBench, ...]
    mark: str = ""
    parts: tuple[Part, ...] = ("scheduler", "host")

    def with_parts(self, names: Sequence[str]) -> "EngineBench":
        """Only the named parts; all that are run by default if none is named.

        Raises:
            ConfigError: there is no such part.
        """
        for name in names:
            if name not in get_args(Part):
                known = ", ".join(get_args(Part))
                raise ConfigError(f"no part '{name}'; use one of: {known}", param="part")
        chosen = tuple(part for part in get_args(Part) if part in names)
        return replace(self, parts=chosen or self.parts)


FULL = EngineBench(
    SchedulerBench(),
    GrowthBench(),
    (
        HostBench(LLAMA_246M, DType.FLOAT32, (*decode_cases((1, 8, 32), 64), PREFILL_512), _PAIRS),
        HostBench(LLAMA_246M, DType.BFLOAT16, decode_cases((1, 8), 16), _PAIRS_BF16),
    ),
)

QUICK = EngineBench(
    SchedulerBench(rounds=3, steps=50),
    GrowthBench(steps=1_000, warm_up=500),
    (HostBench(LLAMA_30M, DType.FLOAT32, (*decode_cases((1, 8), 16), PREFILL_512), rounds=3),),
    QUICK_MARK,
)


def run_engine(bench: EngineBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """Run the bench's parts.

    Args:
        report: told in words what is being done.
    """
    rows: list[BenchRow] = []
    if "scheduler" in bench.parts:
        rows += measure_scheduler(bench.scheduler, report)
    if "growth" in bench.parts:
        rows += measure_growth(bench.growth, report)
    if "host" in bench.parts:
        for host in bench.hosts:
            rows += measure_host(host, report)
    return tuple(replace(row, case=bench.mark + row.case) for row in rows)
