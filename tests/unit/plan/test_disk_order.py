"""Layers on disk are read in the order in which sweeps are done with them, the same in all."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.plan.program import LaneShape, OpKind, Part, ProgramOp
from tandem.plan.sweep_layers import CpuRule, SweepChoice, SweepLayers
from tandem.plan.template_builder import HOST_WEIGHTS
from tandem.plan.templates import sweep_template
from tandem.plan.weights import LENT, SLOTTED, STREAM_SLOTS, Home, as_runs
from tandem.spec.errors import ConfigError

BESIDE: tuple[Home, ...] = ("resident", "streamed", "host", "host-mlp", "cpu")
BOTH: tuple[Home, ...] = ("disk_streamed", "disk-cpu")


def done_with(layers: SweepLayers, num_layers: int) -> tuple[int, ...]:
    """By a sweep's operations: layers in files as they are copied, or their last stage ends."""
    ops = sweep_template(num_layers, (LaneShape(),), layers).ops

    def last_use(op: ProgramOp) -> bool:
        from_files = any(ref.name == HOST_WEIGHTS for ref in op.reads)
        return from_files and (op.kind is OpKind.LOAD or op.part is Part.POST)

    return tuple(op.layer for op in ops if last_use(op))


def read_in(layers: SweepLayers, num_layers: int) -> tuple[int, ...]:
    """Likewise, as they are read."""
    ops = sweep_template(num_layers, (LaneShape(),), layers).ops
    return tuple(op.layer for op in ops if op.kind is OpKind.READ)


@given(st.lists(st.sampled_from((*BESIDE, *BOTH, *BOTH)), min_size=1, max_size=12), st.data())
def test_sweeps_read_in_the_order_of_their_uses(homes: Sequence[Home], data: st.DataObject) -> None:
    placement = as_runs(homes)
    slotted = sum(home in SLOTTED for home in homes)
    if slotted <= STREAM_SLOTS and {*BOTH} <= {*homes}:
        with pytest.raises(ConfigError, match="once and stay"):
            SweepChoice.of_plan(placement)
        return
    usual = SweepChoice.of_plan(placement).usual
    order = done_with(usual, len(homes))
    assert usual.reads == order
    ahead = min(2, len(order))
    assert read_in(usual, len(homes)) == order[ahead:] + order[:ahead]
    if order:  # the circle, as the first sweep finds it
        assert sorted(usual.on_disk) == sorted(order)
        at = usual.on_disk.index(order[0])
        assert usual.on_disk[at:] + usual.on_disk[:at] == order

    free = [n for n in usual.streamed.layers[usual.streamed.slots :] if homes[n] in LENT]
    lent = tuple(layer for layer in free if data.draw(st.booleans()))
    apart = tuple(layer for layer in lent if homes[layer] == "host-mlp")
    whole = {*usual.on_cpu, *lent} - {*apart}
    small = SweepLayers(usual.streamed, tuple(sorted(whole)), apart, (), usual.read_on_cpu)
    if done_with(small, len(homes)) in ((), order):
        choice = SweepChoice.of_plan(placement, (CpuRule(1, lent),))
        assert choice.of(1).on_cpu == small.on_cpu
    else:
        assert usual.read_on_cpu  # one home goes round whatever is lent
        assert usual.streamed.on_disk
        with pytest.raises(ConfigError, match="read in one; leave other layers"):
            SweepChoice.of_plan(placement, (CpuRule(1, lent),))
