"""Compile a block's lanes to programs: prompts, the fill of slots after them, and passes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tandem.plan.binding import SamplingRows
from tandem.plan.block_shape import BlockShape
from tandem.plan.block_template import block_template, first_block_template
from tandem.plan.fill_template import fill_template
from tandem.plan.prefill_template import prefill_template
from tandem.plan.program import LaneSlot, ProgramTemplate, StepProgram
from tandem.plan.validator import Placed, validate_sequence
from tandem.scheduler.row_set import RowSet
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sampling_builder import SamplingBuilder
from tandem.scheduler.sequence import Sequence as RequestSequence


@lru_cache(maxsize=64)
def cached_prompts(shape: BlockShape) -> ProgramTemplate:
    """A validated program over prompts, a batch of `shape` for each part."""
    return _validated(prefill_template(shape))


@lru_cache(maxsize=8)
def cached_passes(shape: BlockShape) -> tuple[ProgramTemplate, ProgramTemplate, ProgramTemplate]:
    """The fill, the first pass after it, and those that follow; validated one after the other."""
    fill, first, further = fill_template(shape), first_block_template(shape), block_template(shape)
    _validated(fill, first, further, further)
    return fill, first, further


@lru_cache(maxsize=8)
def validate_change(before: BlockShape, after: BlockShape) -> None:
    """Passes of one shape, and then of another, whose slots are filled first."""
    fill, first, further = cached_passes(after)
    _validated(cached_passes(before)[2], fill, first, further)


def _validated(*templates: ProgramTemplate) -> ProgramTemplate:
    validate_sequence([Placed(each, tuple(range(len(each.lanes)))) for each in templates])
    return templates[0]


class BlockCompiler:
    """Numbers programs, and fills them.

    Args:
        sequence_of: the sequence in a row.

    Attributes:
        shape: of passes.
    """

    def __init__(
        self,
        shape: BlockShape,
        rows: RowTable,
        sequence_of: Callable[[int], RequestSequence],
    ) -> None:
        self.shape = shape
        self._rows = rows
        self._sampling = SamplingBuilder(rows, sequence_of)
        self._steps = 0

    def prompts(self, lanes: Sequence[LaneSlot]) -> StepProgram:
        """Over prompts in parts, each a lane of its own."""
        return self._program(cached_prompts(replace(self.shape, batches=len(lanes))), lanes)

    def change(self, shape: BlockShape) -> None:
        """Passes are of that shape from now on; what the last one brought for the next is void."""
        if shape != self.shape:
            validate_change(self.shape, shape)
            self.shape = shape

    def tokens(self, lanes: Sequence[LaneSlot], *, fills: bool) -> list[StepProgram]:
        """A token of each sequence, a lane for each batch; the fill before it if slots are void."""
        fill, first, further = cached_passes(self.shape)
        if not fills:
            return [self._program(further, lanes)]
        programs: list[StepProgram] = []
        if self.shape.streamed:
            self._steps += 1
            programs.append(StepProgram(self._steps, fill, tuple(lanes)))
        return [*programs, self._program(first, lanes)]

    def _program(self, template: ProgramTemplate, lanes: Sequence[LaneSlot]) -> StepProgram:
        self._steps += 1
        return StepProgram(
            self._steps,
            template,
            tuple(lanes),
            sampling=tuple(self._sampled(lane) for lane in lanes),
            sampling_lanes=tuple(range(len(lanes))),
        )

    def _sampled(self, lane: LaneSlot) -> SamplingRows:
        rows = RowSet(self._rows, lane.binding.rows.astype(np.int64))
        return self._sampling.build(rows, rows.everywhere)
