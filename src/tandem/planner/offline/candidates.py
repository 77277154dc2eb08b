"""Which offline candidates there are: blocks on a fixed grid, shares where resources balance."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from tandem.plan.block_order import order_of
from tandem.plan.offline import QuantizedLayers
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.offline.bound import BlockBound
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.footprint import BlockFootprint
from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.precisions import Precisions
from tandem.planner.offline.recompute import Recomputes
from tandem.planner.question import Question
from tandem.planner.search.candidates import row_grid

BATCHES = (1, 2, 4, 8, 16)
_EVERY = 2  # of the grid's sizes: small moves follow
_MOST_SLOWER = 5.0
"""Of a layer or an MLP on the CPU, over its way to the accelerator: the share of such that may be
the CPU's in the time of the others' way is 1 in 6.
"""
_MOST_SLOWER_COLUMNS = 12.0
"""Likewise of columns, which are the CPU's in every layer, and wait for no slot."""
_LENT_STEPS = 16
_COLUMN_STEPS = 32
COLUMNS_AT_ONCE = 128
"""Whole tiles of every matrix unit, and whole groups of few bits."""
_FEW_BLOCKS = 8  # numbers of blocks between which the time of a job changes by leaps: all are tried


def lent_step(num_layers: int) -> int:
    """By how many layers, or MLPs, on the CPU candidates differ: each number has programs of its
    own, to be built.
    """
    return max(1, num_layers // _LENT_STEPS)


def column_step(intermediate_size: int) -> int:
    """By how many columns of each MLP on the CPU candidates differ."""
    return max(1, intermediate_size // _COLUMN_STEPS // COLUMNS_AT_ONCE) * COLUMNS_AT_ONCE


def whole_columns(columns: float) -> int:
    """The nearest number of them in whole tiles."""
    return round(columns / COLUMNS_AT_ONCE) * COLUMNS_AT_ONCE


class BlockCandidates:
    """Enumerates what fits."""

    def __init__(
        self,
        question: Question,
        precisions: Precisions,
        footprint: BlockFootprint,
        bound: BlockBound,
    ) -> None:
        self._q, self._precisions = question, precisions
        self._footprint, self._bound = footprint, bound
        self.recomputes = Recomputes(question, precisions, footprint, bound)
        self._most_streamed = question.model.num_layers
        self._may_lend = not question.model.dense_layers
        self.intermediate_size: int = question.model.intermediate_size
        self._divisible = question.model.experts is None
        self._least_known: dict[BlockCandidate, int | None] = {}
        self._most_known: dict[tuple[BlockCandidate, bool, bool], int] = {}

    def of(self, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        """Candidates that keep to the policy and to all capacities, each once."""
        for block in self.blocks(policy):
            for start in self.starts(block, policy):
                yield from self.of_start(start, policy)

    def of_start(self, start: BlockCandidate, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        """Those of one of a block's `starts`, each once."""
        seen: set[BlockCandidate] = set()
        for found in self._shared(start, policy):
            candidate = self._footprint.placed(found)
            if candidate not in seen:
                seen.add(candidate)
                if self.possible(candidate, policy):
                    yield candidate

    def possible(self, candidate: BlockCandidate, policy: OfflinePolicy) -> bool:
        """Whether it keeps to the policy and to all capacities."""
        keeps = policy.allows(candidate, self._q.model.num_layers)
        made = candidate.recomputed_tokens and candidate.lent and not candidate.mlps
        made = made or (candidate.recomputed_tokens and candidate.device_kv is not None)
        divides = candidate.columns > 0 or candidate.attention_maps
        divisible = not divides or self._is_divisible(candidate)
        return keeps and not made and divisible and self._footprint.fits(candidate)

    def _is_divisible(self, candidate: BlockCandidate) -> bool:
        """Whether the CPU may compute some columns of all that is streamed."""
        size, plain = self.intermediate_size, candidate.quantized == "none"
        alone = candidate.streamed > max(STREAM_SLOTS, candidate.on_disk) and not candidate.lent
        may_cut = not (candidate.mlps or candidate.recomputed_tokens)
        cut = may_cut or not candidate.attention_maps
        return plain and alone and cut and 0 < candidate.columns < size

    def placed(self, candidate: BlockCandidate) -> BlockCandidate:
        """With as few layers on disk as must be."""
        return self._footprint.placed(candidate)

    def sizes(self) -> list[int]:
        """Sequences of a block, as even as a whole number of blocks makes them."""
        requests = self._q.lengths.requests
        most = min(requests, self._footprint.max_rows * BATCHES[-1])
        even = {math.ceil(requests / blocks) for blocks in range(1, _FEW_BLOCKS + 1)}
        grid = row_grid(most)[::-_EVERY]
        even |= {math.ceil(requests / math.ceil(requests / size)) for size in grid}
        return sorted(size for size in even if size <= most)

    def blocks(self, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        """Numbers of sequences and of batches, bits, and whether layers or MLPs are streamed; how
        many are, and where KV lies, is left open.
        """
        choices = self._precisions.layer_choices
        few: list[QuantizedLayers] = [each for each in choices if each in policy.layers]
        for batches, rows in self._batches(policy):
            for quantized, kv in product(few, self._precisions.kv_choices):
                block = BlockCandidate(
                    batches, 0, 0, rows, 0, 0, quantized, kv.host, device_kv=kv.device
                )
                if block.kv_in_few_bits not in policy.kv:
                    continue
                yield block
                if self.may_part(block, policy):
                    yield replace(block, mlps=True)

    def _batches(self, policy: OfflinePolicy) -> Iterable[tuple[int, int]]:
        """Their numbers, with sequences of each."""
        found: dict[tuple[int, int], None] = {}
        counts = [count for count in BATCHES if order_of(count) in policy.orders]
        for size, batches in product(self.sizes(), counts):
            rows = math.ceil(size / batches)
            if rows <= self._footprint.max_rows and (batches == 1 or rows * (batches - 1) < size):
                found[batches, rows] = None
        return found

    def starts(self, block: BlockCandidate, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        """Of one of `blocks`, numbers of layers that are streamed; all KV is. Of MLPs, more than
        slots hold.
        """
        for streamed in self._streamed(block, policy):
            if not block.mlps or streamed > STREAM_SLOTS:
                yield replace(block, streamed=streamed)

    def least_streamed(self, block: BlockCandidate, policy: OfflinePolicy) -> int | None:
        """Of a block, layers that all its candidates stream; None: it has no candidate."""
        if policy.all_streamed:
            return self._most_streamed
        counts = self._streamed(block, policy)
        return counts[0] if counts else None

    def _streamed(self, start: BlockCandidate, policy: OfflinePolicy) -> list[int]:
        """As few as make room with no KV on the accelerator, with all of it, and between."""
        if policy.all_streamed:
            return [self._most_streamed]
        bare = start.shared(0, start.rows if policy.attends else 0)
        all_there = start.shared(start.rows, 0)
        counts = [self.fewest_streamed(bare), self.fewest_streamed(all_there)]
        if not policy.resident:
            counts = counts[:1]
        elif not (policy.streams or policy.attends):
            counts = counts[1:]
        # in slots that no other layer needs they are as good as resident
        kept = 0 if start.quantized == "streamed" else STREAM_SLOTS
        found = [0 if count <= kept else count for count in counts if count is not None]
        if len(found) > 1:
            found.append((found[0] + found[1]) // 2)
        return sorted(set(found))

    def fewest_streamed(self, candidate: BlockCandidate) -> int | None:
        """The fewest layers whose streaming makes it fit the accelerator; None: none does."""
        if candidate not in self._least_known:
            self._least_known[candidate] = self._fewest(candidate)
        return self._least_known[candidate]

    def _fewest(self, candidate: BlockCandidate) -> int | None:
        low, high = 0, self._most_streamed
        if not self._has_room(candidate, high):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._has_room(candidate, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _has_room(self, candidate: BlockCandidate, streamed: int) -> bool:
        moved, most = replace(candidate, streamed=streamed), self._q.device_bytes
        # slots for activations may take more than those of short prompts
        away = (self._footprint.device(moved, prompts_on_host=each) for each in (True, False))
        return any(device.total <= most for device in away)

    def _shared(self, start: BlockCandidate, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        """The start with KV on the accelerator, on its way there, and on the CPU."""
        resident = self.most_resident(start, policy)
        hosted = start.rows - resident
        for cpu in self._cpu_rows(start, resident, hosted, policy):
            candidate = start.shared(resident, cpu)
            yield candidate
            if self.may_lend(start, policy) and self._is_worth_lending(start):
                yield from self._lending(candidate, policy)
            if self.may_divide(start, policy) and self._is_worth_dividing(start):
                yield from self._dividing(candidate, policy)
            if self.may_recompute(start, policy):
                for tokens in self.recomputes.of(candidate):
                    yield replace(candidate, recomputed_tokens=tokens)

    def _lending(
        self, candidate: BlockCandidate, policy: OfflinePolicy
    ) -> Iterator[BlockCandidate]:
        """The same with layers, or MLPs, on the CPU, and with as much attention there as then
        levels it.

        To level two resources by two ways from one to the other, one of the ways is used to its end
        or not at all: attention comes first here, MLPs first there.
        """
        for lent in self._lent(candidate):
            yield from self._levelled(replace(candidate, lent=lent), policy)

    def _dividing(
        self, candidate: BlockCandidate, policy: OfflinePolicy
    ) -> Iterator[BlockCandidate]:
        """The same with so many columns of each MLP on the CPU that link and CPU take equally long;
        attention likewise.
        """
        divided = self.divided(candidate)
        if divided is not None:
            yield from self._levelled(divided, policy)

    def divided(self, candidate: BlockCandidate) -> BlockCandidate | None:
        """With so many columns of each MLP on the CPU that link and CPU take equally long; None:
        nothing of it can be.
        """
        step = COLUMNS_AT_ONCE
        most = (self.intermediate_size - 1) // step * step
        candidate = self._footprint.placed(candidate)
        if not most or candidate.streamed <= max(STREAM_SLOTS, candidate.on_disk):
            return None
        some = replace(candidate, columns=step)
        share = self._level(some, replace(candidate, columns=most)) if most > step else 0.0
        return replace(candidate, columns=step + whole_columns(share * (most - step)))

    def _levelled(self, lending: BlockCandidate, policy: OfflinePolicy) -> Iterator[BlockCandidate]:
        """What has some weights on the CPU, and that with attention levelled."""
        yield lending
        hosted = lending.host_rows
        if hosted > 1 and policy.mixes and policy.attends and policy.streams:
            cpu = self._balanced(lending, lending.resident_rows, hosted)
            for rows in policy.shares(hosted, cpu):
                yield lending.shared(lending.resident_rows, rows)

    def may_part(self, block: BlockCandidate, policy: OfflinePolicy) -> bool:
        """Whether only the MLPs of a block's layers may be elsewhere."""
        return policy.apart and self._may_lend and block.quantized != "streamed"

    def may_recompute(self, block: BlockCandidate, policy: OfflinePolicy) -> bool:
        """Whether prefixes of a block's streamed KV are made anew from the start; beside MLPs alone
        elsewhere they are by moves (`BlockMoves.of` and `apart`), which gains the same and costs
        less.
        """
        return policy.recomputes and not block.mlps

    def may_lend(self, block: BlockCandidate, policy: OfflinePolicy) -> bool:
        """Whether streamed layers, or MLPs, of a block may be left to the CPU."""
        known = self._may_lend and block.quantized != "streamed"
        return known and policy.lends(mlps=block.mlps)

    def may_divide(self, block: BlockCandidate, policy: OfflinePolicy) -> bool:
        """Whether columns of MLPs that are streamed may be left to the CPU."""
        known = self._divisible and block.quantized == "none"
        return known and policy.may_divide(mlps=block.mlps)

    def _is_worth_dividing(self, start: BlockCandidate) -> bool:
        """As `_is_worth_lending`."""
        computed_s, brought_s = self._bound.divided_s(start)
        return computed_s <= _MOST_SLOWER_COLUMNS * brought_s

    def _is_worth_lending(self, start: BlockCandidate) -> bool:
        """Unless the CPU takes so much longer than the link that hardly anything would be its."""
        computed_s, brought_s = self._bound.lent_s(start)
        return computed_s <= _MOST_SLOWER * brought_s

    def _lent(self, candidate: BlockCandidate) -> set[int]:
        """Layers, or MLPs, for the CPU: so many that link and CPU take equally long, and as many as
        can be.
        """
        candidate = self._footprint.placed(candidate)
        most = candidate.streamed - max(STREAM_SLOTS, candidate.on_disk)
        if most <= 0:
            return set()
        some = max(1, most - 1)  # beside one more, what is left stays in the slots
        share = self._level(candidate, replace(candidate, lent=some))
        step = lent_step(self._q.model.num_layers)
        return {min(most, round(share * some / step) * step), most} - {0}

    def most_resident(self, start: BlockCandidate, policy: OfflinePolicy) -> int:
        """With the others on the host, either way."""
        if not policy.resident:
            return 0
        key = start, policy.attends, policy.streams
        if key not in self._most_known:
            self._most_known[key] = self._most(start, policy)
        return self._most_known[key]

    def _most(self, start: BlockCandidate, policy: OfflinePolicy) -> int:
        if self._footprint.holds(self._footprint.placed(start.shared(start.rows, 0))):
            return start.rows  # which needs no slots, as any that is streamed does
        cpu_only = policy.attends and not policy.streams
        return max(
            self._footprint.most_resident(start.shared(0, start.rows if cpu_only else 0)),
            self._fill(start) if policy.attends else 0,
        )

    def _fill(self, start: BlockCandidate) -> int:
        """Where the CPU attends to all others, which need no slots."""
        low, high = 0, start.rows
        while low < high:
            middle = (low + high + 1) // 2
            shared = start.shared(middle, start.rows - middle)
            if self._footprint.holds(self._footprint.placed(shared)):
                low = middle
            else:
                high = middle - 1
        return low

    def _cpu_rows(
        self, start: BlockCandidate, resident: int, hosted: int, policy: OfflinePolicy
    ) -> list[int]:
        found = {0} if policy.streams or not hosted else set[int]()
        if policy.attends and hosted:
            found.add(hosted)
        if policy.mixes and policy.attends and policy.streams and hosted > 1:
            found |= policy.shares(hosted, self._balanced(start, resident, hosted))
        return sorted(found)

    def _balanced(self, start: BlockCandidate, resident: int, hosted: int) -> float:
        """Sequences for the CPU, so that link and CPU take equally long."""
        return hosted * self._level(start.shared(resident, 0), start.shared(resident, hosted))

    def _level(self, none: BlockCandidate, all_: BlockCandidate) -> float:
        """How far it is from a candidate that leaves nothing to the CPU to where link and CPU take
        equally long, as a share of the way to one that leaves all; both are nearly linear.
        """
        before, after = self._bound.decode_busy(none), self._bound.decode_busy(all_)
        gap_s = before.link_s - before.host_s
        closing_s = gap_s - (after.link_s - after.host_s)
        return min(1.0, max(0.0, gap_s / closing_s)) if closing_s > 0 else 0.0
