"""A step of decode on memory that stays where it is: what a CUDA graph would be captured from."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput, ScoreRule, plain_attention
from tandem.kernels.pages import PageShape, append_kv, copy_blocks
from tandem.memory.page import KVPageSpec
from tandem.models.model import Model
from tandem.plan.binding import LaneBinding, TierAttention
from tandem.plan.program import LaneShape, LaneSlot, ProgramTemplate, Queue, StepProgram
from tandem.plan.template_builder import LOGITS
from tandem.plan.templates import sweep_template
from tandem.runtime.assemble import MachineSizes, build_machine
from tandem.runtime.lane_context import LaneContext, TierContext
from tandem.runtime.layer_plans import LayerPlans
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.running import Running
from tandem.spec.dtype import DType
from tandem.spec.tier import Tier

_BLOCK_SIZE, _BLOCKS = 16, 4  # of each row


@dataclass(frozen=True)
class StaticPlan:
    """Every row's keys in memory that stays.

    Attributes:
        table: int64 [rows, blocks]. position: int64 [rows], of each row's query.
        window: as `TierKernels.plan`'s.
    """

    table: Tensor
    position: Tensor
    window: int

    @property
    def num_tokens(self) -> int:
        """A query of each row."""
        return len(self.position)


class StaticKernels:
    """Reads all of each row's blocks, and masks by positions where they lie: as the Triton kernels
    do, no host's number says how many keys there are.
    """

    name = "static"

    def __init__(self, shape: PageShape, rule: ScoreRule) -> None:
        self.shape, self._rule = shape, rule

    def plan(self, attention: TierAttention, window: int = 0) -> StaticPlan:
        """Not from arrays."""
        raise NotImplementedError

    def plan_append(self, slots: Tensor) -> Tensor:
        """The slots."""
        return slots

    def append(self, pages: Tensor, k: Tensor, v: Tensor, planned: Tensor) -> None:
        """By torch."""
        append_kv(pages, k, v, planned)

    def copy_blocks(
        self, src_pages: Tensor, src_ids: Tensor, dst_pages: Tensor, dst_ids: Tensor
    ) -> None:
        """By torch."""
        copy_blocks(src_pages, src_ids, dst_pages, dst_ids)

    def attend(self, q: Tensor, pages: Tensor, planned: object) -> AttentionOutput:
        """See `TierKernels`."""
        assert isinstance(planned, StaticPlan)
        rows, shape = planned.num_tokens, self.shape
        blocks = pages.index_select(0, planned.table.view(-1)).float()
        held = blocks.view(rows, -1, 2, shape.kv_heads, shape.block_size, shape.head_dim)
        k, v = held.permute(2, 0, 3, 1, 4, 5).flatten(3, 4)
        keys = torch.arange(k.shape[2])
        hidden = keys > planned.position[:, None]
        if planned.window:
            hidden |= keys <= planned.position[:, None] - planned.window
        mask = torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)[:, None, None]
        query = q.float().view(rows, shape.kv_heads, -1, shape.head_dim)
        out, lse = plain_attention(query, k, v, self._rule, mask=mask)
        return AttentionOutput(out.reshape(q.shape), lse.reshape(q.shape[:2]))


class StaticDecode:
    """The operations of a sweep over rows that decode, by the engine's own runner.

    `step` is a whole step that feeds the next one: the token with the largest logit goes to the
    slot table, from which the next step takes it, and positions move on by one.
    """

    def __init__(self, model: Model, positions: list[int]) -> None:
        spec, rows = model.spec, len(positions)
        page = KVPageSpec.of_model(spec, dtype=DType.FLOAT32, block_size=_BLOCK_SIZE)
        sizes = MachineSizes(page, rows * _BLOCKS, 1, rows)
        machine = build_machine(model, sizes, lambda tensor: tensor)
        kernels = StaticKernels(
            PageShape(spec.num_kv_heads, _BLOCK_SIZE, spec.head_dim),
            ScoreRule(spec.attention_scale, spec.attention_soft_cap),
        )
        machine.runner.kernels[Tier.DEVICE] = kernels
        pages = machine.kv.all_layers(Tier.DEVICE, Queue.ACCEL)
        pages.copy_(torch.randn(pages.shape, generator=torch.Generator().manual_seed(1)))
        order = torch.randperm(rows * _BLOCKS, generator=torch.Generator().manual_seed(2))
        self._table, self._position = order.view(rows, _BLOCKS), torch.tensor(positions)
        self._slots = torch.empty(rows, dtype=torch.int64)
        self._runner, self._machine, self._rows = machine.runner, machine, rows
        windows = spec.layer_windows
        plans = {w: StaticPlan(self._table, self._position, w) for w in set(windows)}
        self._context = self._made(sweep_template(spec.num_layers, (LaneShape(),)), plans, windows)
        self._lane = self._context.lanes[0]
        machine.slots.copy_(torch.arange(3, 3 + rows))

    def _made(
        self, template: ProgramTemplate, plans: dict[int, StaticPlan], windows: tuple[int, ...]
    ) -> ProgramContext:
        index = torch.arange(self._rows)
        empty = np.zeros(0, np.int64)
        binding = LaneBinding(
            empty.astype(np.int32), empty, empty, empty.astype(np.int32), {}, {}, empty
        )
        slot = LaneSlot(binding)
        device = TierContext(None, None, self._slots, self._slots, LayerPlans(plans, windows))
        lane = LaneContext(
            slot=slot,
            token_ids=torch.full((self._rows,), -1),
            token_rows=index,
            positions=self._position,
            logits_index=index,
            tiers={Tier.DEVICE: device, Tier.HOST: TierContext(None, None, None, None, None)},
            staging=None,
        )
        return ProgramContext(StepProgram(0, template, (slot,)), [lane])

    def step(self) -> None:
        """One token of every row."""
        block, offset = self._position // _BLOCK_SIZE, self._position % _BLOCK_SIZE
        held = self._table.gather(1, block[:, None])[:, 0]
        self._slots.copy_(held * _BLOCK_SIZE + offset)
        for op in self._context.program.template.ops:
            self._runner.run(Running(op, self._context))
        logits = self._machine.buffers.get((LOGITS, self._lane.key), Queue.ACCEL)
        assert isinstance(logits, Tensor)
        self._machine.slots.copy_(logits.argmax(1))
        self._position.add_(1)

    @property
    def tokens(self) -> list[int]:
        """The last of each row."""
        return self._machine.slots.tolist()
