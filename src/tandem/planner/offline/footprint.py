"""Which bytes an offline plan takes in which memory."""

import math
from dataclasses import replace
from typing import NamedTuple

from tandem.memory.block_step import BlockStep, CpuStepBytes, block_step_bytes
from tandem.memory.page import KVPageSpec
from tandem.memory.workspace import StepMemory
from tandem.plan.block_shape import CACHE_SLOTS, MADE_AT_ONCE
from tandem.plan.disk_slots import SLOTS, slot_bytes, slots_bytes
from tandem.plan.offline import QuantizedLayers, TierBudget
from tandem.plan.weights import STREAM_SLOTS, stream_slots
from tandem.planner.footprint import Footprint
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.precisions import Precisions
from tandem.planner.offline.prompt_sizes import PromptSizes
from tandem.planner.offline.sequence_room import SequenceRoom
from tandem.planner.question import MAX_ROWS, Question
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType
from tandem.spec.parameters import layer_matrix_bytes, mlp_matrix_bytes

_TOKEN_BYTES = 24
"""Of a prompt's token on the accelerator between layers, beside its activations: id, place, row."""

_SPARE = 8
"""One block for so many that a plan counts on."""

_PINNED_SPARE = 8
"""One sequence more that shares solved anew may stream, for so many of a batch with KV on the host:
what is pinned cannot be swapped out, and takes the driver a tenth of a second per GB.
"""


class TierSums(NamedTuple):
    """Bytes of one memory by what they are for, as in `TierBudget`."""

    weights: int = 0
    kv: int = 0
    slots: int = 0
    workspace: int = 0
    pinned: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.slots + self.workspace

    def with_kv(self, size: int, *, pinned: int = 0) -> "TierSums":
        """So many bytes more for KV, and so many more of all of it pinned."""
        return self._replace(kv=self.kv + size, pinned=self.pinned + pinned)

    def of(self, capacity_bytes: int) -> TierBudget:
        """Within a memory.

        Raises:
            ConfigError: it does not hold them.
        """
        return TierBudget(
            capacity_bytes, self.weights, self.kv, self.slots, self.workspace, self.pinned
        )


class BlockFootprint:
    """Sums for one question.

    Args:
        room: of the job's sequences, if it is known already.
    """

    def __init__(
        self, question: Question, precisions: Precisions, room: SequenceRoom | None = None
    ) -> None:
        model, plain = question.model, precisions.plain
        self._q, self._precisions = question, precisions
        self._base = Footprint(replace(question, precision=plain))
        self._step = StepMemory(model, plain.activations)
        self.page: KVPageSpec = self._base.page
        self._block_layer_bytes = self.page.bytes_per_block_layer
        self.room: SequenceRoom = room or SequenceRoom(question.lengths, question.block_size)
        self.prompt: int = max(1, round(question.lengths.prompt_tokens))
        self.activation_bytes: int = model.hidden_size * plain.activations.size_bytes
        self._pages: dict[CodeType | None, KVPageSpec] = {
            kind: self.page if kind is None else replace(self.page, dtype=kind)
            for kind in dict.fromkeys(kv.host for kv in precisions.kv_choices)
        }
        self._page_bytes: dict[CodeType | None, int] = {
            kind: page.bytes_per_block for kind, page in self._pages.items()
        }
        self._workspaces: dict[tuple[int | bool, ...], int] = {}
        self._layer_bytes: dict[tuple[QuantizedLayers, bool], int] = {
            (quantized, streamed): layer_matrix_bytes(
                model, precisions.of_layer(quantized, streamed=streamed)
            )
            for quantized in precisions.layer_choices
            for streamed in (False, True)
        }
        self._mlp_bytes: dict[QuantizedLayers, int] = {
            quantized: mlp_matrix_bytes(model, precisions.of_layer(quantized, streamed=True))
            for quantized in precisions.layer_choices
        }
        there = StepMemory(model, DType.FLOAT32)
        self._on_cpu: dict[bool, CpuStepBytes] = {
            mlps: CpuStepBytes.of(there, whole=not mlps) for mlps in (False, True)
        }
        self._on_cpu_of_cut = CpuStepBytes.of(there, whole=True, divided=True)
        # of prompts at once: a step's, or a longer one
        self._part_tokens: int = max(
            question.max_num_batched_tokens, question.lengths.longest_tokens
        )
        self.prompts = PromptSizes(
            question.lengths, question.block_size, question.max_num_batched_tokens
        )
        # a part's prompts fill their last blocks in part only
        self._step_blocks: int = max(
            self.page.blocks_for_tokens(self._part_tokens), self.prompts.slot_blocks
        )
        self.max_rows: int = min(MAX_ROWS, question.max_num_batched_tokens)
        self.reads: bool = question.hardware.host.disk_bytes_per_s is not None
        """Whether layers may be read from disk."""

    def device_page(self, candidate: BlockCandidate) -> KVPageSpec:
        """Of KV on the accelerator."""
        return self._pages[candidate.device_kv]

    def host_page(self, candidate: BlockCandidate) -> KVPageSpec:
        """Of KV on the host."""
        return self._pages[candidate.host_kv]

    def prompts_on_host(self, candidate: BlockCandidate) -> bool:
        """Where the accelerator has no room for the prompts' activations between layers."""
        return self.device(candidate, prompts_on_host=False).total > self._q.device_bytes

    def fits(self, candidate: BlockCandidate) -> bool:
        """All memories hold it, and as much as it must have may be pinned."""
        away = self.prompts_on_host(candidate)
        return self._holds(candidate, away) and self.pins(candidate, prompts_on_host=away)

    def holds(self, candidate: BlockCandidate) -> bool:
        """All memories hold it, however much of them may be pinned: what has more KV on the
        accelerator takes more there, and pins less.
        """
        return self._holds(candidate, self.prompts_on_host(candidate))

    def _holds(self, candidate: BlockCandidate, away: bool) -> bool:
        if not 0 < candidate.rows <= self.max_rows:
            return False
        device = self.device(candidate, prompts_on_host=away).total
        host = self.host(candidate, prompts_on_host=away).total
        return device <= self._q.device_bytes and host <= self._q.host_bytes

    def pins(
        self, candidate: BlockCandidate, *, prompts_on_host: bool, spare_rows: int = 0
    ) -> bool:
        """Whether as much as it must have may be pinned.

        Args:
            spare_rows: of a batch, sequences more that may come to be streamed.
        """
        most = self._q.pinned_bytes
        if most is None:
            return True
        adapts = spare_rows > 0
        host = self.host(candidate, prompts_on_host=prompts_on_host, adapts=adapts)
        spare = self._pinned_blocks(candidate, spare_rows) - self._pinned_blocks(candidate, 0)
        return host.pinned + spare * self._page_bytes[candidate.host_kv] <= most

    def pinned_rows(self, candidate: BlockCandidate, *, prompts_on_host: bool) -> int:
        """Of a batch, sequences whose KV may be brought in passes: those that are streamed, and of
        the others as many as shares that are solved anew may come to.
        """
        streamed = candidate.streamed_rows
        spare = min(
            math.ceil(candidate.host_rows / _PINNED_SPARE),
            max(0, self.most_streamed(candidate) - streamed),
        )
        while spare and not self.pins(candidate, prompts_on_host=prompts_on_host, spare_rows=spare):
            spare -= 1
        return streamed + spare

    def pinned_blocks(self, candidate: BlockCandidate, rows: int) -> int:
        """Of the host's blocks, those of so many of a batch's sequences; all, if what is left is
        not enough for the longest one.
        """
        return self._pinned_blocks(candidate, rows - candidate.streamed_rows)

    def _pinned_blocks(self, candidate: BlockCandidate, spare_rows: int) -> int:
        rows, all_blocks = candidate.streamed_rows + spare_rows, self.host_blocks(candidate)
        if not rows:
            return 0
        blocks = self._room_blocks(candidate, rows * candidate.batches, candidate.recomputed_tokens)
        return blocks if all_blocks - blocks >= self.room.longest_blocks else all_blocks

    def least_device(self, candidate: BlockCandidate) -> TierSums:
        """Of the accelerator's memory, with prompts where it takes less: a step takes more of it
        if they come from the host, which is more than few prompts take between layers.
        """
        both = (self.device(candidate, prompts_on_host=away) for away in (True, False))
        return min(both, key=lambda sums: sums.total)

    def placed(self, candidate: BlockCandidate) -> BlockCandidate:
        """With as few layers on disk as the host's memory, and what of it may be pinned, make
        necessary; with none if even all streamed ones there would not be enough. Beside MLPs they
        are no fewer than there are slots, which have to be as large as they.
        """
        here = replace(candidate, on_disk=0) if candidate.on_disk else candidate
        if not self.reads or not here.streamed:
            return here
        sums = self.host(here, prompts_on_host=True)
        over, pinned_over = sums.total - self._q.host_bytes, 0
        if over > 0 and not self.prompts_on_host(here):
            over = self.host(here, prompts_on_host=False).total - self._q.host_bytes
        if self._q.pinned_bytes is not None:
            pinned_over = sums.pinned - self._q.pinned_bytes
        if max(over, pinned_over) <= 0:
            return here
        size = self._layer_bytes[here.quantized, True]
        over += slots_bytes(size)
        if pinned_over > 0:
            over = max(over, pinned_over + SLOTS * slot_bytes(size))
        count = math.ceil(over / self._held_bytes(here))
        if here.mlps:
            count = max(count, STREAM_SLOTS)
        if count > here.streamed:
            return here
        return replace(here, on_disk=count, lent=min(here.lent, here.streamed - count))

    def device(
        self, candidate: BlockCandidate, *, prompts_on_host: bool, adapts: bool = False
    ) -> TierSums:
        """Of the accelerator's memory.

        Args:
            adapts: the CPU may come to attend to any sequence with its KV on the host.
        """
        streamed, quantized = candidate.streamed, candidate.quantized
        resident = self._q.model.num_layers - streamed
        weights = self._base.outside_bytes + resident * self._layer_bytes[quantized, False]
        if candidate.mlps:
            weights += (streamed - candidate.on_disk) * self.attention_bytes(quantized)
        weights += stream_slots(streamed) * self._slot_bytes(candidate)
        kv = self.device_blocks(candidate) * self._page_bytes[candidate.device_kv]
        attends = candidate.cpu_rows > 0 or adapts
        workspace = self._workspace(candidate, prompts_on_host, attends)
        return TierSums(weights, kv, self._slots(candidate), workspace)

    def attention_bytes(self, quantized: QuantizedLayers) -> int:
        """What stays of a layer of which only the MLP is elsewhere."""
        return self._layer_bytes[quantized, False] - self._mlp_bytes[quantized]

    def _held_bytes(self, candidate: BlockCandidate) -> int:
        """Of a streamed layer, what the host's memory holds."""
        if candidate.mlps:
            return self._mlp_bytes[candidate.quantized]
        return self._layer_bytes[candidate.quantized, True]

    def _slot_bytes(self, candidate: BlockCandidate) -> int:
        """The largest of what comes."""
        if candidate.on_disk:
            return self._layer_bytes[candidate.quantized, True]
        return self._held_bytes(candidate)

    def device_blocks(self, candidate: BlockCandidate) -> int:
        """Of all layers, on the accelerator."""
        return self._room_blocks(candidate, candidate.resident_rows * candidate.batches)

    def host_blocks(self, candidate: BlockCandidate) -> int:
        """Of all layers, on the host."""
        return self._crossing_blocks(candidate) + self._staying_blocks(candidate)

    def spare_device_blocks(self, candidate: BlockCandidate, free_bytes: int) -> int:
        """Of memory that nothing else takes, some blocks more, so that nobody waits for a few."""
        size = self.device_page(candidate).bytes_per_block
        return min(self.device_blocks(candidate) // _SPARE, free_bytes // size)

    def spare_host_blocks(self, candidate: BlockCandidate, free_bytes: int) -> int:
        """The same on the host."""
        size = self.host_page(candidate).bytes_per_block
        return min(self.host_blocks(candidate) // _SPARE, free_bytes // size)

    def slot_blocks(self, candidate: BlockCandidate) -> int:
        """Of one layer, in a slot that holds a batch's streamed KV or the prompts of a step."""
        if not candidate.host_rows:
            return 0
        return max(self._step_blocks, self._streamed_blocks(candidate))

    def most_streamed(self, candidate: BlockCandidate) -> int:
        """Of a batch's sequences with KV on the host, how many a slot has room for."""
        room, blocks = candidate.host_rows, self.slot_blocks(candidate)
        return max(n for n in range(room + 1) if self._room_blocks(candidate, n) <= blocks)

    def _streamed_blocks(self, candidate: BlockCandidate) -> int:
        rows = candidate.streamed_rows
        return max(
            self._room_blocks(candidate, rows, candidate.recomputed_tokens),
            self.room.longest_blocks,
        )

    def _crossing_blocks(self, candidate: BlockCandidate) -> int:
        streamed = candidate.streamed_rows * candidate.batches
        return self._room_blocks(candidate, streamed, candidate.recomputed_tokens)

    def _staying_blocks(self, candidate: BlockCandidate) -> int:
        return self._room_blocks(candidate, candidate.cpu_rows * candidate.batches)

    def _room_blocks(
        self, candidate: BlockCandidate, sequences: int, recomputed_tokens: int = 0
    ) -> int:
        """Of some of a block's sequences."""
        together = candidate.block_rows >= self._q.lengths.requests
        return self.room.blocks(sequences, recomputed_tokens, together=together)

    def _slots(self, candidate: BlockCandidate) -> int:
        """For keys, values and activations that pass, those of prompts on their way included."""
        if not candidate.host_rows:
            return 0
        page, away = self.host_page(candidate), self._block_layer_bytes
        size = CACHE_SLOTS * self._step_blocks * away
        rows, prefix = candidate.streamed_rows, candidate.recomputed_tokens
        if not rows:
            return size
        made = prefix // self.page.block_size
        blocks = self._streamed_blocks(candidate)
        size += CACHE_SLOTS * blocks * page.bytes_per_block_layer
        size += CACHE_SLOTS * rows * prefix * self.activation_bytes
        return size + rows * made * away

    def _workspace(self, candidate: BlockCandidate, prompts_on_host: bool, attends: bool) -> int:
        """Of a step, and what all batches keep between layers; of equal ones, summed up once."""
        made = min(MADE_AT_ONCE, candidate.streamed_rows * candidate.recomputed_tokens)
        rows, lends, divides = candidate.rows, candidate.lent > 0, candidate.columns > 0
        key = (rows, candidate.batches, made, attends, prompts_on_host, lends, divides)
        found = self._workspaces.get(key)
        if found is None:
            found = self._workspace_of(candidate, made, prompts_on_host, attends)
            self._workspaces[key] = found
        return found

    def _workspace_of(
        self, candidate: BlockCandidate, made: int, prompts_on_host: bool, attends: bool
    ) -> int:
        step = BlockStep(
            tokens=self._part_tokens,
            rows=candidate.rows,
            block_rows=candidate.block_rows,
            made_tokens=made,
            attends_on_cpu=attends,
            prompts_on_host=prompts_on_host,
            real=True,
            divides=candidate.columns > 0,
        )
        prompts = self._together_tokens(candidate)
        kept = 0 if prompts_on_host else prompts * (self.activation_bytes + _TOKEN_BYTES)
        on_cpu = candidate.lent or candidate.columns
        kept += candidate.rows * self._step.token_bytes if on_cpu else 0
        return block_step_bytes(self._step, step) + kept

    def _together_tokens(self, candidate: BlockCandidate) -> int:
        """Of prompts between two layers."""
        return max(self._part_tokens, self.prompts.together_tokens(candidate.block_rows))

    def host(
        self, candidate: BlockCandidate, *, prompts_on_host: bool, adapts: bool = False
    ) -> TierSums:
        """Of the host's memory; of KV, what is streamed is pinned, and what prefixes are made from.

        Args:
            adapts: any sequence with its KV there may come to be streamed, or attended there.
        """
        weights = (candidate.streamed - candidate.on_disk) * self._held_bytes(candidate)
        pinned = weights
        if candidate.on_disk:
            size = self._layer_bytes[candidate.quantized, True]
            weights += slots_bytes(size)
            pinned += SLOTS * slot_bytes(size)
        block_bytes, batches = self._page_bytes[candidate.host_kv], candidate.batches
        streamed = candidate.streamed_rows * batches
        crossing = self._crossing_blocks(candidate) * block_bytes
        prefix = candidate.recomputed_tokens * self.activation_bytes * self._q.model.num_layers
        crossing += streamed * prefix
        stays = self._staying_blocks(candidate) * block_bytes
        staged = self._step.qkv_token_bytes + self._step.partial_token_bytes
        workspace = (candidate.host_rows if adapts else candidate.cpu_rows) * batches * staged
        if prompts_on_host:
            prompts = self._together_tokens(candidate)
            workspace += prompts * self.activation_bytes
        if candidate.lent or candidate.columns:
            on_cpu = self._on_cpu[candidate.mlps or candidate.columns > 0]
            on_cpu = self._on_cpu_of_cut if candidate.attention_maps else on_cpu
            workspace += candidate.block_rows * on_cpu.held + candidate.rows * on_cpu.scratch
        pinned += self._pinned_blocks(candidate, 0) * block_bytes + streamed * prefix
        return TierSums(weights, crossing + stays, 0, workspace, pinned)

    def most_resident(self, candidate: BlockCandidate) -> int:
        """Of the sequences that are neither there nor attended on the CPU, how many can be."""
        low, high = 0, candidate.rows - candidate.cpu_rows
        while low < high:
            middle = (low + high + 1) // 2
            if self.holds(self.placed(candidate.shared(middle, candidate.cpu_rows))):
                low = middle
            else:
                high = middle - 1
        return low
