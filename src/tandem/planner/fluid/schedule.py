"""Schedules of sweeps for virtual time, and what of them bounds depend on."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from tandem.plan.program import LaneShape, ProgramOp
from tandem.plan.sweep_layers import SweepLayers
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.folded_sweep import FoldedSweeps
from tandem.planner.fluid.grouping import grouped
from tandem.planner.fluid.groups import QUEUE_INDEX, Group, Schedule
from tandem.planner.fluid.sweep_operations import sweep_operations, told_alike
from tandem.spec.model import ModelSpec


class SweepCounts(NamedTuple):
    """Of a sweep: layers that the CPU computes, by window, in how many runs, and whether whole;
    layers that are loaded, of those the ones whose MLP alone is, and those that are read from disk;
    of each mixture elsewhere, experts that are resident.
    """

    by_window: tuple[tuple[int, int], ...]
    runs: int
    whole: bool
    loads: int
    mlp_loads: int
    reads: int
    experts: int = 0


def count_layers(layers: SweepLayers, windows: tuple[int, ...]) -> SweepCounts:
    """Of a sweep's layers, by what they cost.

    Args:
        windows: of each layer of the model.
    """
    on_cpu = Counter(windows[layer] for layer in layers.on_cpu or layers.mlp_on_cpu)
    runs = len(set(layers.on_cpu) - {layer + 1 for layer in layers.on_cpu})
    loaded = layers.loaded
    # as many as there are slots stay in them
    loads = len(loaded) if layers.reloads else 0
    mlp_loads = len(set(loaded) & set(layers.streamed.mlps)) if loads else 0
    reads = len(layers.on_disk) if loads or not layers.streamed.layers else 0
    return SweepCounts(tuple(on_cpu.items()), runs, bool(layers.on_cpu), loads, mlp_loads, reads)


class Schedules:
    """Schedules of one model; each is made once, whatever the machine."""

    def __init__(
        self, num_layers: int, windows: tuple[int, ...], dense: Collection[int] = ()
    ) -> None:
        self._num_layers, self._windows, self._dense = num_layers, windows, dense
        self._folded = FoldedSweeps(windows, dense)
        self._made: dict[tuple[tuple[LaneShape, ...], SweepLayers], Schedule] = {}
        self._layers: dict[tuple[Elsewhere, bool], tuple[SweepLayers, SweepCounts]] = {}

    def layers(self, elsewhere: Elsewhere, *, prompts: bool) -> tuple[SweepLayers, SweepCounts]:
        """What a sweep does with layers elsewhere, and what of it the bound depends on.

        Args:
            prompts: whether it reads any.
        """
        key = elsewhere, prompts and elsewhere.lent > 0  # else it makes no difference
        found = self._layers.get(key)
        if found is None:
            if elsewhere.lent and not prompts:
                layers = elsewhere.lend(self.layers(elsewhere.lending(0), prompts=False)[0])
            else:
                layers = elsewhere.sweep(self._num_layers, self._dense, prompts=prompts)
            counts = count_layers(layers, self._windows)._replace(experts=elsewhere.experts)
            found = self._layers[key] = layers, counts
        return found

    @staticmethod
    def of_model(model: ModelSpec) -> "Schedules":
        """For a model."""
        return Schedules(model.num_layers, model.layer_windows, model.dense_layers)

    def of(self, lanes: tuple[LaneShape, ...], layers: SweepLayers) -> Schedule:
        """One sweep of these lanes, with these layers streamed or on the CPU."""
        key = (lanes, layers)
        if key not in self._made:
            self._made[key] = self._folded.schedule(lanes, layers) or self._whole(lanes, layers)
        return self._made[key]

    def _whole(self, lanes: tuple[LaneShape, ...], layers: SweepLayers) -> Schedule:
        """Layer by layer."""
        ops = sweep_operations(self._num_layers, lanes, layers)
        return grouped(told_alike(ops, lanes), self._windows, self._dense)


def schedule_each(num_layers: int, lanes: tuple[LaneShape, ...], layers: SweepLayers) -> Schedule:
    """The same with every operation a group of its own, and none taken for another."""
    return each_alone(told_alike(sweep_operations(num_layers, lanes, layers), lanes))


def each_alone(ops: Iterable[ProgramOp]) -> Schedule:
    """Operations in a topological order, each a group of its own."""
    ops = tuple(ops)
    groups = [
        Group(
            QUEUE_INDEX[op.queue],
            op.ordinal,
            ((index, 1),),
            tuple(_waits(op)),
            op.joins,
            op.raises,
        )
        for index, op in enumerate(ops)
    ]
    return Schedule(ops, tuple(groups))


def _waits(op: ProgramOp) -> Iterator[tuple[int, int]]:
    for wait in op.waits:
        if wait.ordinal <= 0 or wait.queue is not op.queue:
            yield QUEUE_INDEX[wait.queue], wait.ordinal
