"""What one layer costs a sweep, by the home of its weights; attention is priced apart.

Nothing dearer than programs are: what residuals of whole layers cost on their way is left out.
"""

from typing import NamedTuple

from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.plan.weights import MLPS_APART, ON_CPU, ON_DISK
from tandem.planner.demand import Demand, Demands
from tandem.planner.footprint import Footprint
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.question import Question
from tandem.planner.relaxation.homes import SHARED, THROUGH_SLOTS, LayerHome
from tandem.spec.parameters import movable_layer

_LINEAR = ((OpKind.STAGE, Part.PRE), (OpKind.MERGE, Part.NONE), (OpKind.STAGE, Part.POST))
_APART: tuple[LayerHome, ...] = (*MLPS_APART, "streamed-mlp")
_BEFORE_EXPERTS = (
    (OpKind.STAGE, Part.PRE),
    (OpKind.MERGE, Part.NONE),
    (OpKind.STAGE, Part.ROUTE),
)
_BEFORE_MLP = ((OpKind.STAGE, Part.PRE), (OpKind.MERGE, Part.NONE), (OpKind.STAGE, Part.OUTPUT))


class LayerPrice(NamedTuple):
    """One layer in one sweep.

    Attributes:
        chain_s: of its stages, one after the other, wherever they run.
        cpu_s: of that, on the CPU. link_s: of its weights on the link. disk_s: on the disk.
        dram_bytes: of weights, in the host's memory. loaded_bytes: of these, those of loads.
        cpu_bytes: those of the CPU's stages.
        longer_there_s: by how much the chain is longer that goes by the other side of mixtures
            whose experts are on both; below 0 if it is shorter.
    """

    chain_s: float
    cpu_s: float = 0.0
    link_s: float = 0.0
    disk_s: float = 0.0
    dram_bytes: float = 0.0
    longer_there_s: float = 0.0
    loaded_bytes: float = 0.0
    cpu_bytes: float = 0.0


class LayerPrices:
    """Prices and sizes for one question, the former those of programs."""

    def __init__(self, question: Question, footprint: Footprint) -> None:
        self._footprint = footprint
        self._movable, self._dense = movable_layer(question.model), question.model.dense_layers
        self._demands = Demands(question, footprint.page)
        self._prices: dict[tuple[LayerHome, int], LayerPrice] = {}
        self._ones: dict[tuple[OpKind, Part, int, Queue, int], Demand] = {}

    def device_bytes(self, home: LayerHome) -> int:
        """Of a layer on the accelerator; slots are counted apart."""
        if home in ("resident", "experts"):
            return self._footprint.layer_bytes
        if home in SHARED:
            return self._footprint.layer_bytes - self._footprint.experts_bytes
        return self._footprint.layer_bytes - self._footprint.mlp_bytes if home in _APART else 0

    def host_bytes(self, home: LayerHome) -> int:
        """Of a layer in the host's memory."""
        if home in _APART:
            return self._footprint.mlp_bytes
        if home in SHARED and home != "experts":
            return self._footprint.experts_bytes
        return self._footprint.layer_bytes if home in ("streamed", "host", "cpu") else 0

    def dense_s(self, tokens: int) -> float:
        """Of all layers without experts in a model with some, which are resident: their chain."""
        if not self._dense:
            return 0.0
        each_s, _ = _sum([self._one(*op, tokens, layer=self._dense[0]) for op in _LINEAR])
        return len(self._dense) * each_s

    def of(self, home: LayerHome, tokens: int) -> LayerPrice:
        """In a sweep of `tokens` tokens; layers at home `host` or `host-mlp` cost what is done with
        them.
        """
        key = (home, tokens)
        if key not in self._prices:
            self._prices[key] = self._price(home, tokens)
        return self._prices[key]

    def _price(self, home: LayerHome, tokens: int) -> LayerPrice:
        if home in ON_CPU:
            works = [self._one(*op, tokens, Queue.CPU) for op in _LINEAR]
            cpu_s, moved_bytes = _sum(works)
            disk_s, read_bytes = self._read(tokens) if home in ON_DISK else (0.0, 0.0)
            return LayerPrice(
                cpu_s, cpu_s, 0.0, disk_s, moved_bytes + read_bytes, cpu_bytes=moved_bytes
            )
        if home in SHARED:
            return self._of_shared(home, tokens)
        if home == "cpu-mlp":
            return self._mlp_apart(tokens)
        # of stages on the accelerator, the host alone has the bytes in its own memory
        chain_s, moved_bytes = _sum([self._one(*op, tokens) for op in _LINEAR])
        load_s = disk_s = loaded_bytes = 0.0
        if home in THROUGH_SLOTS:
            part = Part.MLP if home == "streamed-mlp" else Part.NONE
            load_s, loaded_bytes = _sum([self._one(OpKind.LOAD, part, tokens, Queue.WEIGHTS)])
            moved_bytes += loaded_bytes
        if home in ON_DISK:
            disk_s, read_bytes = self._read(tokens)
            moved_bytes += read_bytes
        return LayerPrice(chain_s, 0.0, load_s, disk_s, moved_bytes, loaded_bytes=loaded_bytes)

    def _of_shared(self, home: LayerHome, tokens: int) -> LayerPrice:
        """Of a layer whose experts are all at `home`, or a share of one.

        Two chains are counted, of which neither is longer than a program's: by what waits for the
        accelerator's experts, and by what waits for those of the CPU.
        """
        whole_s, _ = _sum([self._one(*op, tokens) for op in _LINEAR])
        routed_s, _ = _sum([self._one(*op, tokens) for op in _BEFORE_EXPERTS])
        if home == "experts":
            return LayerPrice(whole_s, longer_there_s=min(0.0, routed_s - whole_s))
        if home == "experts-streamed":
            # without the router, which stays
            share = self._footprint.experts_bytes / self._footprint.mlp_bytes
            load_s, size = _sum([self._one(OpKind.LOAD, Part.MLP, tokens, Queue.WEIGHTS)])
            moved = share * size
            return LayerPrice(whole_s, 0.0, share * load_s, dram_bytes=moved, loaded_bytes=moved)
        turn = ((Part.ROUTE, Queue.D2H), (Part.RESIDUAL, Queue.H2D))
        turn_s, copied = _sum([self._one(OpKind.COPY, part, tokens, way) for part, way in turn])
        cpu_s, read = _sum([self._one(OpKind.STAGE, Part.EXPERTS, tokens, Queue.CPU)])
        return LayerPrice(routed_s, cpu_s, dram_bytes=copied + read, longer_there_s=turn_s + cpu_s)

    def _read(self, tokens: int) -> tuple[float, float]:
        """Of the disk, and the bytes that it writes into the host's memory."""
        return _sum([self._one(OpKind.READ, Part.NONE, tokens, Queue.DISK)])

    def _mlp_apart(self, tokens: int) -> LayerPrice:
        """Residuals go down to each MLP, and come back."""
        before_s, _ = _sum([self._one(*op, tokens) for op in _BEFORE_MLP])
        ways = (Queue.D2H, Queue.H2D)
        turn = [self._one(OpKind.COPY, Part.RESIDUAL, tokens, way) for way in ways]
        turn_s, copied_bytes = _sum(turn)
        cpu_s, read_bytes = _sum([self._one(OpKind.STAGE, Part.MLP, tokens, Queue.CPU)])
        total_s = before_s + turn_s + cpu_s
        moved_bytes = copied_bytes + read_bytes
        return LayerPrice(total_s, cpu_s, dram_bytes=moved_bytes, cpu_bytes=read_bytes)

    def _one(
        self,
        kind: OpKind,
        part: Part,
        tokens: int,
        queue: Queue = Queue.ACCEL,
        layer: int | None = None,
    ) -> Demand:
        """One operation on so many tokens; several homes have some in common."""
        key = kind, part, tokens, queue, self._movable if layer is None else layer
        if key not in self._ones:
            op = ProgramOp(kind, queue, part, (), key[-1], 1, (), (), ())
            self._ones[key] = self._demands.of(op, [LaneLoad(TierLoad(tokens))])
        return self._ones[key]


def _sum(demands: list[Demand]) -> tuple[float, float]:
    """Seconds one after the other, and bytes in the host's memory."""
    return (
        sum(demand.alone_s for demand in demands),
        sum(demand.alone_s * demand.dram_bytes_per_s for demand in demands),
    )
