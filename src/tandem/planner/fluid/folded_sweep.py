"""Sweeps as groups without building every layer: layers that are alike, among neighbours that are
alike, have the same operations, and wait for the same ones before them.

A sweep of few layers, in which each kind of layer occurs that the long one has, is built as engines
build theirs and cut into layers. The long one's groups are put together from those.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tandem.plan.disk_slots import slots_in_use
from tandem.plan.program import LaneShape, OpKind, ProgramOp
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import StreamedLayers
from tandem.planner.fluid.grouping import Fragment, Operations, assemble, fragments, layer_kind
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.sweep_operations import sweep_operations

_NONE = -1
"""In place of a layer that is not there."""
_LOADED, _MLP_LOADED, _ON_CPU, _MLP_ON_CPU = 1, 2, 4, 8
_READ, _BRINGS_READ = 16, 32
"""Computed where it is read to; and followed in its slot by a layer that is read."""
_PLACE_SHIFT, _COHORT_SHIFT = 6, 10
"""Among layers that stay in the slots, the place counts: what brings them is in sweeps before."""
_AT_CURSOR, _NEXT = 1, 2
"""Of each cohort, in two bits more: where it joins, and the layer after."""

Kind = tuple[int, int, int, int, bool]
"""What is done with the layer before, with a layer, and with the one after; what prices depend on:
its window, and whether it lacks the experts that others have.
"""


_BROUGHT = (OpKind.LOAD, OpKind.READ)
"""Operations that name the layer that comes, not the one after which it does."""


class _Sweep(NamedTuple):
    """What is the same for all layers."""

    lanes: tuple[LaneShape, ...]
    slots: int
    refills: bool
    slots_read: int


class FoldedSweeps:
    """Schedules of one model's sweeps. What has been cut is kept for other sweeps.

    Args:
        windows: of each layer. dense: in a model with experts, layers without.
    """

    def __init__(self, windows: tuple[int, ...], dense: Collection[int]) -> None:
        self._windows = windows
        self._is_dense = [layer in dense for layer in range(len(windows))]
        self._operations = Operations(layer_kind(windows, dense))
        self._known: dict[_Sweep, dict[Kind, Fragment]] = {}

    def schedule(self, lanes: tuple[LaneShape, ...], layers: SweepLayers) -> Schedule | None:
        """A sweep's; None where layers depend on more than their neighbours: passes of a cohort's
        own, cohorts beside the CPU's layers, layers that are read for it, mixtures that both
        compute.
        """
        if not (_lanes_depend_on_neighbours(lanes, layers) and _layers_do(layers)):
            return None
        sweep = _Sweep(
            tuple(replace(lane, cursor=0) if lane.suspends else lane for lane in lanes),
            layers.streamed.slots,
            layers.reloads,
            slots_in_use(len(layers.on_disk)),
        )
        kinds = self._kinds(lanes, layers, refills=sweep.refills)
        known = self._known.setdefault(sweep, {})
        missing = {kind: layer for layer, kind in enumerate(kinds) if kind not in known}
        if missing:
            kept = self._around(missing.values(), sweep, lanes, layers)
            cut = self._cut(kept, lanes, layers)
            known |= {kind: cut[layer] for kind, layer in missing.items()}
        return assemble([known[kind] for kind in kinds], self._operations)

    def _kinds(
        self, lanes: Iterable[LaneShape], layers: SweepLayers, *, refills: bool
    ) -> list[Kind]:
        done = [0] * len(self._windows)
        read = frozenset(layers.on_disk)
        for bit, members in (
            (_LOADED, layers.loaded),
            (_MLP_LOADED, layers.streamed.mlps),
            (_ON_CPU, layers.on_cpu),
            (_MLP_ON_CPU, layers.mlp_on_cpu),
            (_READ, () if layers.streamed.layers else layers.on_disk),
            (_BRINGS_READ, [a for a, b in _successors(layers) if b in read] if read else ()),
        ):
            for layer in members:
                done[layer] |= bit
        for place, layer in enumerate(() if refills else layers.loaded):
            done[layer] |= place << _PLACE_SHIFT
        shift = _COHORT_SHIFT
        for lane in lanes:
            if lane.cursor is not None:
                done[lane.cursor] |= _AT_CURSOR << shift
                if lane.cursor + 1 < len(done):
                    done[lane.cursor + 1] |= _NEXT << shift
                shift += 2
        return list(
            zip(
                [_NONE, *done[:-1]],
                done,
                [*done[1:], _NONE],
                self._windows,
                self._is_dense,
                strict=True,
            )
        )

    def _cut(
        self, kept: Sequence[int], lanes: Iterable[LaneShape], layers: SweepLayers
    ) -> dict[int, Fragment]:
        """A sweep of some of the layers, by layer."""
        place = {layer: index for index, layer in enumerate(kept)}
        moved = tuple(
            lane if lane.cursor is None else replace(lane, cursor=place[lane.cursor])
            for lane in lanes
        )
        ops = sweep_operations(len(kept), moved, _some(layers, place))
        parts = [_named(part, kept) for part in _by_layer(ops)]
        return dict(zip(kept, fragments(parts, self._operations), strict=True))

    def _around(
        self, wanted: Iterable[int], sweep: _Sweep, lanes: Iterable[LaneShape], layers: SweepLayers
    ) -> list[int]:
        """Layers with their neighbours, what a circle has to begin with, and enough of its layers;
        likewise where cohorts join.
        """
        last = len(self._windows) - 1
        wanted = list(wanted)
        centres = [*wanted, *(lane.cursor for lane in lanes if lane.cursor is not None)]
        kept = {layer + step for layer in centres for step in (-1, 0, 1)}
        kept.update(layers.streamed.first)
        if sweep.refills:
            kept.update(layers.loaded[: sweep.slots + 1])
        if layers.on_disk:  # what follows in its slot may be far from a layer
            kept.update(layers.on_disk[: sweep.slots_read])
            kept.update(_followers(layers.loaded, kept & set(wanted), sweep.slots))
        return sorted(layer for layer in kept if 0 <= layer <= last)


def _lanes_depend_on_neighbours(lanes: Iterable[LaneShape], layers: SweepLayers) -> bool:
    """Some run through, and others join once, where all layers are the accelerator's."""
    others = [lane for lane in lanes if lane.suspends or lane.cursor is not None]
    if not others:
        return True
    once = all(
        lane.suspends and lane.cursor is not None and lane.beside is None and lane.after is None
        for lane in others
    )
    some_run_through = any(lane not in others for lane in lanes)
    return once and some_run_through and not (layers.on_cpu or layers.mlp_on_cpu)


def _layers_do(layers: SweepLayers) -> bool:
    """Likewise: of what is loaded, all is alike; nothing is both's, or read for the CPU."""
    alike = layers.streamed.mlps in ((), layers.streamed.layers)
    return alike and not (layers.read_on_cpu or layers.split_mlps)


def _successors(layers: SweepLayers) -> Iterable[tuple[int, int]]:
    """Layers, and who follows in their slots, where others do."""
    return layers.successors.items() if layers.reloads else ()


def _followers(loaded: Sequence[int], of: Collection[int], slots: int) -> set[int]:
    """The layers that are loaded up to the one that follows in a layer's slot."""
    return {
        after
        for at, layer in enumerate(loaded)
        if layer in of
        for after in loaded[at : at + slots + 1]
    }


def _some(layers: SweepLayers, place: dict[int, int]) -> SweepLayers:
    """What of it concerns some layers, by their places among themselves."""

    def kept(every: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(place[layer] for layer in every if layer in place)

    circle = layers.streamed
    streamed = StreamedLayers(kept(circle.layers), kept(circle.on_disk), kept(circle.mlps))
    return SweepLayers(streamed, kept(layers.on_cpu), kept(layers.mlp_on_cpu))


def _by_layer(ops: Sequence[ProgramOp]) -> list[list[ProgramOp]]:
    """Cut where a layer begins; loads and reads come at the end of the layer that makes room for
    them, and sampling after the last one.
    """
    parts: list[list[ProgramOp]] = [[]]
    current = 0
    for op in ops:
        if op.layer > current and op.kind not in _BROUGHT:
            current = op.layer
            parts.append([])
        parts[-1].append(op)
    return parts


def _named(ops: Iterable[ProgramOp], layers: Sequence[int]) -> list[ProgramOp]:
    """With the layers' own numbers."""
    return [op if op.layer < 0 else op._replace(layer=layers[op.layer]) for op in ops]
