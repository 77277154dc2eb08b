"""A job on engines of blocks that follow each other, where another plan comes into force."""

from dataclasses import dataclass

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.offline.job import build_job, job_requests, virtual_host
from tandem.bench.online.cell import DTYPE
from tandem.engine.block_core import BlockCore
from tandem.engine.block_renewal import Renewal, RenewedBlocks, may_be_renewed
from tandem.engine.block_stats import BlockCounts
from tandem.engine.building.paced_types import block_types
from tandem.plan.plan_file import PlanFile
from tandem.runtime.paced.virtual import VirtualClock

_SAID = ("planned anew", "wrongly predicted")


@dataclass(frozen=True, slots=True)
class RenewedJob:
    """A whole job in virtual time.

    Attributes:
        plans: that were in force. said: of passes that took another time than was planned, and of
            what came of it.
    """

    tokens: int
    wall_s: float
    plans: int
    said: tuple[str, ...]

    @property
    def tokens_per_s(self) -> float:
        """Of output, over the whole job, later engines' loading included."""
        return self.tokens / self.wall_s


def execute_renewed(cell: OfflineCell, planned: PlanFile) -> RenewedJob:
    """Run the cell's job as the plan says, and, where that may be, by others that are made for the
    rates that are measured. Making one takes no time; to load its weights takes what the link does.

    Raises:
        ConfigError: the plan cannot be executed.
    """
    return _Run(cell).run(planned)


class _Run:
    def __init__(self, cell: OfflineCell) -> None:
        self._cell, self._clock = cell, VirtualClock()
        self._plans = 0

    def run(self, planned: PlanFile) -> RenewedJob:
        core: BlockCore | RenewedBlocks = self._build(planned, BlockCounts())
        if planned.machine is not None and may_be_renewed(planned):
            model, load_s = self._cell.model, self._load_s(planned)
            precision = block_types(planned.blocks, model, DTYPE).precision
            again = Renewal(model, precision, planned.machine, self._build_again, load_s)
            core = RenewedBlocks(core, planned, again)
        try:
            return self._run(core)
        finally:
            core.close()

    def _run(self, core: BlockCore | RenewedBlocks) -> RenewedJob:
        begin_s, tokens = self._clock.now(), 0
        for request in job_requests(self._cell.workload):
            core.add_request(request)
        while core.has_work():
            tokens += sum(len(output.token_ids) for output in core.step())
        said = tuple(line for line in core.stats().notes if line.startswith(_SAID))
        return RenewedJob(tokens, self._clock.now() - begin_s, self._plans, said)

    def _build(self, planned: PlanFile, counts: BlockCounts) -> BlockCore:
        self._plans += 1
        options, pool = virtual_host(self._cell, planned)
        clock = self._clock
        return build_job(self._cell, planned, options, clock=clock, pool=pool, counts=counts).core

    def _build_again(self, planned: PlanFile, counts: BlockCounts) -> BlockCore:
        self._clock.time_s += self._load_s(planned)
        return self._build(planned, counts)

    def _load_s(self, planned: PlanFile) -> float:
        """Of weights to the accelerator, over the link as described."""
        weights = planned.blocks.accelerator.weights_bytes
        return weights / self._cell.hardware.link.h2d_bytes_per_s
