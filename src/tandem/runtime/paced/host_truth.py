"""What a described host truly takes for attention, where its work is not done but only timed."""

import random

from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown, append_cost, attention_cost
from tandem.memory.page import KVPageSpec
from tandem.plan.program import OpKind
from tandem.runtime.paced.costs import PacedLane
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.hardware import HostFacts
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier


class HostTruth:
    """Durations of appends and attention on the CPU in virtual time.

    Args:
        host: as it truly is; its memory is read, and its cores compute, at these rates.
        change: jitter.
    """

    def __init__(
        self, model: ModelSpec, page: KVPageSpec, host: HostFacts, change: Perturbation
    ) -> None:
        self._rates = DeviceRates(host.memory_bandwidth_bytes_per_s, host.flops_per_s, 0.0)
        self._model, self._dtype = model, page.float_type
        self._operations = [layer_operations(model, i) for i in range(model.num_layers)]
        self._jitter, self._draw = change.jitter, random.Random(change.seed)

    def duration_s(self, task: HostTask) -> float:
        """Of an append or an attention."""
        op, program = task.entry.op, task.entry.program
        assert op.kind in (OpKind.APPEND, OpKind.ATTEND), "no plan of blocks has layers on the CPU"
        seconds = 0.0
        for number in program.active(op):
            lane = program.lanes[number]
            assert isinstance(lane, PacedLane)
            appends = op.kind is OpKind.APPEND
            seconds += (self._append(lane) if appends else self._attention(lane, op.layer)).total_s
        return seconds * (1 + self._draw.uniform(-self._jitter, self._jitter))

    def _append(self, lane: PacedLane) -> CostBreakdown:
        tokens = lane.work.num_appended(Tier.HOST)
        return append_cost(self._model, tokens, self._dtype, self._rates)

    def _attention(self, lane: PacedLane, layer: int) -> CostBreakdown:
        work = lane.work.attention(Tier.HOST, layer)
        return attention_cost(self._operations[layer], work, self._dtype, self._rates)
