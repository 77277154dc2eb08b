"""Which bytes a candidate takes in which memory, by the engine's own sums."""

import math
from dataclasses import dataclass

from tandem.cost.split_mixture import MixtureBytes
from tandem.memory.page import KVPageSpec
from tandem.memory.workspace import KERNEL_SCRATCH_BYTES, LargestStep, StepMemory
from tandem.plan.disk_slots import slots_bytes
from tandem.plan.strategy_names import most_sampled_rows
from tandem.plan.weights import stream_slots
from tandem.planner.candidate import Candidate, Strategy, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.held_blocks import HeldBlocks
from tandem.planner.places import num_places
from tandem.planner.question import Question
from tandem.planner.room import Room, RowTables
from tandem.spec.parameters import (
    layer_matrix_bytes,
    layers_matrix_parameters,
    lookup_parameters,
    mlp_matrix_bytes,
    movable_layer,
    num_parameters,
)

_SLOT_BYTES = 8  # of a sampled token id


@dataclass(frozen=True, slots=True)
class TierUse:
    """Bytes of one memory by what they are for; `free_bytes` may be negative."""

    capacity_bytes: int
    weights_bytes: int
    workspace_bytes: int
    kv_bytes: int

    @property
    def free_bytes(self) -> int:
        """What is left."""
        return self.capacity_bytes - self.weights_bytes - self.workspace_bytes - self.kv_bytes


class Footprint:
    """Sums for one question. Pages and workspaces are those of `memory/`, as the engine's are.

    Args:
        like: of a question about the same requests, of which what does not hang on the machine is
            shared.
    """

    def __init__(self, question: Question, like: "Footprint | None" = None) -> None:
        model, precision = question.model, question.precision
        self._q = question
        self.page = KVPageSpec.of_model(model, dtype=precision.kv, block_size=question.block_size)
        movable = movable_layer(model)
        self.layer_bytes: int = layer_matrix_bytes(model, precision, movable)
        self.mlp_bytes: int = mlp_matrix_bytes(model, precision, movable)
        self._mixture = None if model.experts is None else MixtureBytes.of(model, precision)
        in_maps = layers_matrix_parameters(model)
        outside = (num_parameters(model) - in_maps) * precision.weights.size_bytes
        fixed = (layer_matrix_bytes(model, precision, layer) for layer in model.dense_layers)
        self.outside_bytes: int = outside + sum(fixed)
        # embeddings that may lie in host memory: those that are the head as well stay
        looked_up = 0 if question.host_only else lookup_parameters(model)
        self.embedding_bytes: int = looked_up * precision.weights.size_bytes
        self.block_bytes: int = self.page.bytes_per_block
        self._step_memory = StepMemory(model, precision.activations)
        lengths = question.lengths
        shared = like if like is not None and question.asks_the_same_as(like._q) else None
        self.held = HeldBlocks.of(lengths, question.block_size) if shared is None else shared.held
        self.longest_blocks: int = self.page.blocks_for_tokens(max(1, lengths.longest_tokens - 1))
        self._tables: dict[int, RowTables] = {} if shared is None else shared._tables
        self._workspaces: dict[tuple[Strategy, int, int, int, tuple[int, int]], int] = {}
        self._rooms: dict[tuple[Strategy, Elsewhere, int], Room] = {}

    @property
    def row_bytes(self) -> float:
        """KV that a running request holds in the mean; of one that runs alone, at its end."""
        alone = self._q.objective == "latency"
        return self.block_bytes * (self.held.last if alone else self.held.mean)

    @property
    def disk_slots_bytes(self) -> int:
        """Of the host's memory, what layers on disk go through."""
        return slots_bytes(self.layer_bytes)

    @property
    def holds_weights(self) -> bool:
        """Whether nothing needs to lie on disk: the memory that weights leave for holds all layers,
        and the longest request.
        """
        every = self._q.movable_layers * self.layer_bytes
        every += self.longest_blocks * self.block_bytes
        if not self._q.host_only:
            return every <= self._q.host_bytes
        return every <= self._q.device_bytes - self.outside_bytes - self.workspace("gpu-only", 1)

    def apart_bytes(self, experts: int) -> int:
        """Of an MLP, what is elsewhere where so many of its experts are resident."""
        return self.mlp_bytes if self._mixture is None else self._mixture.left(experts)

    @property
    def experts_bytes(self) -> int:
        """Of all experts of a mixture; 0 in a model without."""
        return 0 if self._mixture is None else self._mixture.count * self._mixture.expert

    def resident_bytes(self, elsewhere: Elsewhere) -> int:
        """Of the accelerator's memory, what weights take."""
        there = (self._q.movable_layers - elsewhere.away) * self.layer_bytes
        apart = self.apart_bytes(elsewhere.experts)
        there -= elsewhere.mlps_away * apart
        moved = apart if elsewhere.mlps else self.layer_bytes
        there += stream_slots(elsewhere.streamed) * moved
        if elsewhere.read_in_place:
            there += self.disk_slots_bytes
        hosted = self.embedding_bytes if elsewhere.embedding else 0
        return self.outside_bytes + there - hosted

    def hosted_bytes(self, elsewhere: Elsewhere) -> int:
        """Of the host's memory, what weights take."""
        reads = elsewhere.on_disk > elsewhere.read_in_place
        slots = self.disk_slots_bytes if reads else 0
        whole = elsewhere.in_host * self.layer_bytes
        hosted = self.embedding_bytes if elsewhere.embedding else 0
        mlps = elsewhere.mlps_away * self.apart_bytes(elsewhere.experts)
        return whole + slots + mlps + hosted

    def workspace(
        self,
        strategy: Strategy,
        rows: int,
        step_tokens: int = 0,
        *,
        device_rows: int = 0,
        cohorts: tuple[int, int] = (0, 0),
    ) -> int:
        """Of the accelerator's memory, what a step takes beside weights and pages.

        Args:
            rows: that run at once. device_rows: of them, on the accelerator beside cohorts.
            step_tokens: of a candidate.
            cohorts: how many, and rows of one.
        """
        key = strategy, rows, step_tokens, device_rows, cohorts
        found = self._workspaces.get(key)
        if found is None:
            found = self._workspaces[key] = self._workspace(*key)
        return found

    def _workspace(
        self,
        strategy: Strategy,
        rows: int,
        step_tokens: int,
        device_rows: int,
        cohorts: tuple[int, int],
    ) -> int:
        count, cohort_rows = cohorts
        sampled = most_sampled_rows(strategy, rows, device_rows, cohort_rows)
        step = LargestStep(
            tokens=self._q.step_of(step_tokens),
            rows=rows,
            cohort_tokens=min(rows, count * cohort_rows),
            tiers=1 if strategy == "gpu-only" else 2,
            device_type="cpu" if self._q.host_only else "cuda",
            sampled_rows=sampled if sampled < rows else None,
            cohort_rows=cohort_rows,
        )
        scratch = 0 if self._q.host_only else KERNEL_SCRATCH_BYTES
        return self._step_memory.largest_bytes(step) + scratch + rows * _SLOT_BYTES

    def workspace_of(self, candidate: Candidate, more: int = 0) -> int:
        """Likewise, of the engine that executes a candidate; arguments as of `engine_plan`."""
        places = num_places(self._q, candidate) + more
        beside = places - candidate.rows  # whose prompt is read, in either tier, or that are young
        return self.workspace(
            candidate.strategy,
            places,
            candidate.step_tokens,
            device_rows=candidate.max_device_seqs and candidate.max_device_seqs + beside,
            cohorts=(candidate.num_cohorts, candidate.cohort_rows),
        )

    def device_kv_bytes(
        self, strategy: Strategy, elsewhere: Elsewhere, rows: int, step_tokens: int = 0
    ) -> int:
        """What weights and workspace leave for pages on the accelerator; negative: too much."""
        used = self.resident_bytes(elsewhere) + self.workspace(strategy, rows, step_tokens)
        return self._q.device_bytes - used

    def host_kv_bytes(self, elsewhere: Elsewhere) -> int:
        """What weights leave for pages in the host's memory."""
        return self._q.host_bytes - self.hosted_bytes(elsewhere)

    def device_blocks(self, candidate: Candidate, more: int = 0) -> int:
        """Blocks that the accelerator holds; arguments as of `engine_plan`."""
        used = self.resident_bytes(candidate.elsewhere) + self.workspace_of(candidate, more)
        return max(0, (self._q.device_bytes - used) // self.block_bytes)

    def host_blocks(self, candidate: Candidate) -> int:
        """Blocks that the host holds; none where nothing would be attended there."""
        if candidate.strategy == "gpu-only":
            return 0
        return max(0, self.host_kv_bytes(candidate.elsewhere) // self.block_bytes)

    def fits(self, candidate: Candidate) -> bool:
        """Weights, workspace and the rows' pages have room, and so has the longest request; and the
        rows leave prompts their room in a sweep.
        """
        room = self.room(candidate.strategy, candidate.elsewhere, candidate.step_tokens)
        if candidate.device_share:
            return self._splits(candidate, room)
        return room.holds(
            candidate.device_rows,
            candidate.host_rows,
            candidate.passes,
            prompts_here=candidate.prompts_here,
        )

    def room(self, strategy: Strategy, elsewhere: Elsewhere, step_tokens: int = 0) -> Room:
        """What requests find beside weights, of which these layers are elsewhere."""
        key = strategy, elsewhere, step_tokens
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = self._room(*key)
        return found

    def _splits(self, candidate: Candidate, room: Room) -> bool:
        """`fits`, of requests that lie in both tiers."""
        rows, step = candidate.rows, candidate.step_tokens
        left = room.device_bytes - self.workspace_of(candidate)
        if rows > self._q.most_rows(step) or left < 0 or room.host_bytes < 0:
            return False
        device, host = left // self.block_bytes, room.host_bytes // self.block_bytes
        wanted = self._row_blocks(candidate, device, host)
        if wanted[0] > device or wanted[1] > host or self.longest_blocks > device + host:
            return False
        if self.longest_blocks <= device:  # an engine divides only what the device does not hold
            return False
        return self._q.prompts_keep_up(rows, rows, step)

    def _room(self, strategy: Strategy, elsewhere: Elsewhere, step_tokens: int) -> Room:
        tables = self._tables.get(step_tokens)
        if tables is None:
            tables = RowTables(self._q, self.held, self.workspace, step_tokens)
            self._tables[step_tokens] = tables
        return Room(
            self._q,
            tables,
            candidate_of(strategy, elsewhere, 0, 0, step_tokens=step_tokens),
            self._q.device_bytes - self.resident_bytes(elsewhere),
            self.host_kv_bytes(elsewhere),
            self.block_bytes,
            self.longest_blocks,
        )

    def _row_blocks(self, candidate: Candidate, device: int, host: int) -> tuple[int, int]:
        """Blocks that the running rows want of the accelerator's and of the host's. Those in both
        tiers fill up their places on the accelerator, and are counted as long as they become.
        """
        if candidate.device_share:
            last, rows = math.ceil(self.held.last), candidate.host_rows
            split = round(last * candidate.device_share)
            return rows * split, rows * (last - split)
        followed = candidate.rows < self._q.lengths.requests
        reading = num_places(self._q, candidate) > candidate.rows
        passing = self.held.passing(candidate.prompts_here)
        return (
            self.held.wanted(candidate.device_rows, device, followed=followed, reading=reading)
            + passing,
            self.held.wanted(candidate.host_rows, host, followed=followed, reading=reading),
        )

    def uses(self, candidate: Candidate, more: int = 0) -> tuple[TierUse, TierUse]:
        """The accelerator's memory, and the host's share; KV is that of the rows that are counted.

        Args:
            more: as of `engine_plan`.
        """
        device_blocks, host_blocks = self._row_blocks(
            candidate, self.device_blocks(candidate, more), self.host_blocks(candidate)
        )
        return (
            TierUse(
                self._q.device_bytes,
                self.resident_bytes(candidate.elsewhere),
                self.workspace_of(candidate, more),
                device_blocks * self.block_bytes,
            ),
            TierUse(
                self._q.host_bytes,
                self.hosted_bytes(candidate.elsewhere),
                0,
                host_blocks * self.block_bytes,
            ),
        )
