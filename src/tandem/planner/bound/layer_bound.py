"""What a layer's operations cannot take less than, by what a lane brings to them."""

from collections import Counter
from collections.abc import Sequence

from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.bound.least import Least
from tandem.planner.demand import Demands
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.question import Question
from tandem.spec.tier import Tier


class LayerBound:
    """Of one question; equal parts are computed once.

    Args:
        like: of another question; of an equal accelerator's, its own operations' times are taken.

    Attributes:
        layer_with: of each window a layer that may be elsewhere, if there is one. kinds: these, and
            how many there are of each. movable: one of those that may be, of `num_movable`.
        dense: layers without experts of a model with some.
        load, read: of a layer's weights, over the link and from disk.
    """

    def __init__(
        self, question: Question, demands: Demands, like: "LayerBound | None" = None
    ) -> None:
        self._question, self._demands = question, demands
        windows = question.model.layer_windows
        self.dense = question.model.dense_layers
        movable = [i for i in range(len(windows)) if i not in self.dense]
        # the last one counts
        order = (*self.dense, *reversed(movable))
        self.layer_with = {windows[layer]: layer for layer in order}
        counts = Counter(windows)
        self.kinds = [(self.layer_with[window], count) for window, count in counts.items()]
        self.movable, self.num_movable = movable[0], len(movable)
        self._ops: dict[tuple[OpKind, Part, int, Queue], ProgramOp] = {}
        self.load = self.one(OpKind.LOAD, Part.NONE, (), queue=Queue.WEIGHTS)
        self._mlp_loads: dict[int, Least] = {}
        self.read = Least()
        if question.hardware.host.disk_bytes_per_s is not None:
            self.read = self.one(OpKind.READ, Part.NONE, (), queue=Queue.DISK)
        self._ends: dict[tuple[int, int], Least] = {}
        self._end_parts: dict[tuple[OpKind, Part, int], Least] = {}
        self._layers: dict[tuple[int, int], Least] = {}
        self._device: dict[tuple[TierLoad, int], Least] = {}
        self._device_appends: dict[int, Least] = {}
        if like is not None and question.computes_as_fast_as(like._question):
            self._ends, self._end_parts = like._ends, like._end_parts
            self._layers, self._device = like._layers, like._device
            self._device_appends = like._device_appends
        self._hosted: dict[tuple[TierLoad, int], Least] = {}
        self._ways: dict[int, tuple[Least, Least]] = {}
        self._host_appends: dict[int, Least] = {}

    def mlp_load(self, experts: int) -> Least:
        """Of an MLP, or of what is left of a mixture without so many experts."""
        if experts not in self._mlp_loads:
            load = self.one(OpKind.LOAD, Part.MLP, (), queue=Queue.WEIGHTS, experts=experts)
            self._mlp_loads[experts] = load
        return self._mlp_loads[experts]

    def all_stages(self, lane: LaneLoad) -> Least:
        """All but attention."""
        work = self._ends_of(lane).plus(self.layer(lane.tokens, self.movable), self.num_movable)
        if self.dense:
            work = work.plus(self.layer(lane.tokens, self.dense[0]), len(self.dense))
        return work

    def attention(self, lane: LaneLoad, layer: int) -> Least:
        """Of one layer whose queries are on the accelerator."""
        return self.device_part(lane.device, layer).beside(self.host(lane.host, layer))

    def _ends_of(self, lane: LaneLoad) -> Least:
        """Before and after the layers."""
        key = tokens, logits = lane.tokens, lane.logits
        found = self._ends.get(key)
        if found is None:
            parts = self._end(OpKind.STAGE, Part.EMBED, lane, tokens)
            for kind, part in ((OpKind.STAGE, Part.HEAD), (OpKind.SAMPLE, Part.NONE)):
                parts = parts.plus(self._end(kind, part, lane, logits))
            found = self._ends[key] = parts
        return found

    def _end(self, kind: OpKind, part: Part, lane: LaneLoad, rows: int) -> Least:
        """Of it, what hangs on so many of a lane's tokens, or of its logits, alone."""
        key = kind, part, rows
        found = self._end_parts.get(key)
        if found is None:
            found = self._end_parts[key] = self.one(kind, part, [lane], self.movable)
        return found

    def layer(self, tokens: int, layer: int) -> Least:
        """Its operations outside attention, which do not depend on where the KV lies."""
        key = (tokens, layer)
        found = self._layers.get(key)
        if found is None:
            lanes = [LaneLoad(TierLoad(tokens))]
            found = self.all(lanes, (OpKind.STAGE, Part.PRE), (OpKind.STAGE, Part.POST),
                             (OpKind.MERGE, Part.NONE), layer=layer)  # fmt: skip
            self._layers[key] = found
        return found

    def all(
        self, lanes: Sequence[LaneLoad], *ops: tuple[OpKind, Part], layer: int | None = None
    ) -> Least:
        """Operations of the accelerator, one after the other."""
        chain_s = dram_bytes = cpu_s = 0.0  # without a tuple for each: thousands are asked for
        for kind, part in ops:
            one = self.one(kind, part, lanes, self.movable if layer is None else layer)
            chain_s += one.chain_s
            dram_bytes += one.dram_bytes
            cpu_s += one.cpu_s
        return Least(chain_s, dram_bytes, cpu_s)

    def device_part(self, tier: TierLoad, layer: int) -> Least:
        """One layer's attention on the accelerator."""
        if not tier.tokens:
            return Least()
        key = (tier, layer)
        found = self._device.get(key)
        if found is None:
            lanes, tokens = [LaneLoad(tier)], tier.tokens
            append = self._device_appends.get(tokens)
            if append is None:
                append = self.one(OpKind.APPEND, Part.NONE, lanes, layer)
                self._device_appends[tokens] = append
            found = append.plus(self.one(OpKind.ATTEND, Part.NONE, lanes, layer))
            self._device[key] = found
        return found

    def host(self, tier: TierLoad, layer: int) -> Least:
        """One layer's attention on the host, and the way there and back."""
        if not tier.tokens:
            return Least()
        key = (tier, layer)
        found = self._hosted.get(key)
        if found is None:
            there, back = self._way(tier)
            found = self._hosted[key] = there.plus(self.host_part(tier, layer)).plus(back)
        return found

    def _way(self, tier: TierLoad) -> tuple[Least, Least]:
        """There and back, which hangs on the number of tokens alone."""
        found = self._ways.get(tier.tokens)
        if found is None:
            lanes = [LaneLoad(host=tier)]
            there = self.one(OpKind.COPY, Part.QKV, lanes, queue=Queue.D2H)
            back = self.one(OpKind.COPY, Part.PARTIAL, lanes, queue=Queue.H2D)
            found = self._ways[tier.tokens] = there, back
        return found

    def host_part(self, tier: TierLoad, layer: int) -> Least:
        """The same without the way."""
        if not tier.tokens:
            return Least()
        lanes, tokens = [LaneLoad(host=tier)], tier.tokens
        append = self._host_appends.get(tokens)
        if append is None:
            append = self.one(OpKind.APPEND, Part.NONE, lanes, layer, Queue.CPU)
            self._host_appends[tokens] = append
        return append.plus(self.one(OpKind.ATTEND, Part.NONE, lanes, layer, Queue.CPU))

    def one(
        self,
        kind: OpKind,
        part: Part,
        lanes: Sequence[LaneLoad],
        layer: int = 0,
        queue: Queue = Queue.ACCEL,
        experts: int = 0,
    ) -> Least:
        """A single operation."""
        key = (kind, part, layer, queue)
        op = self._ops.get(key)
        if op is None:
            tier = Tier.HOST if queue is Queue.CPU else Tier.DEVICE
            op = self._ops[key] = ProgramOp(kind, queue, part, (), layer, 1, (), (), (), tier)
        demand = self._demands.of(op, lanes, experts=experts)
        cpu_s = demand.alone_s if queue is Queue.CPU else 0.0
        return Least(demand.alone_s, demand.alone_s * demand.dram_bytes_per_s, cpu_s)
