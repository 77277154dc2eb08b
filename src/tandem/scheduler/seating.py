"""How waiting requests get rows, which begin with what the prefix cache has of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandem.memory.prefix_cache import CachedBlock
from tandem.scheduler.kv_manager import KVManager
from tandem.scheduler.proposal import Admission
from tandem.scheduler.rows import UNLIMITED, RowTable
from tandem.scheduler.running import Running
from tandem.scheduler.sequence import Sequence
from tandem.scheduler.waiting import WaitingQueue
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.scheduler.prefix_disk import PrefixDisk
    from tandem.scheduler.prefix_tiers import PrefixTiers


@dataclass(slots=True)
class Seating:
    """Gives rows to requests of the waiting queue.

    Attributes:
        tiers, disk: where cached prefixes lie beside the device; they are told what is used.
        cached_prompt_tokens: prompt tokens taken from the prefix cache so far.
    """

    rows: RowTable
    kv: KVManager
    waiting: WaitingQueue
    running: Running
    tiers: "PrefixTiers | None"
    disk: "PrefixDisk | None"
    cached_prompt_tokens: int = 0

    def spill(self, row: int) -> None:
        """Put a row's further blocks into the other tier than planned."""
        r = self.rows
        on_device = r.num_blocks[row] < r.device_limit[row]
        r.device_limit[row] = r.num_blocks[row] if on_device else UNLIMITED

    def admit(self, admission: Admission) -> tuple[int, int]:
        """Give a request a row and blocks for its first tokens: the row, and how many tokens."""
        sequence = self._found(admission.request_id)
        matched = self.kv.matched(sequence, admission.device_limit)
        row = self._seat(sequence, admission.device_limit, matched)
        self.rows.leaves[row] = admission.leaves
        self.kv.grow(row, admission.num_tokens)
        return row, admission.num_tokens

    def fetch(self, request_id: str) -> None:
        """Give a request a row, and bring what the host has of its beginning to the device."""
        sequence = self._found(request_id)
        matched = self.kv.matched_across(sequence)
        hosted = sum(entry.tier is Tier.HOST for entry in matched)
        row = self._seat(sequence, UNLIMITED, matched, hosted)
        if hosted:
            self.running.swap_in(row)

    def _found(self, request_id: str) -> Sequence:
        sequence = self.running.find(request_id)
        assert sequence is not None
        return sequence

    def _seat(
        self, sequence: Sequence, device_limit: int, matched: list[CachedBlock], fetched: int = 0
    ) -> int:
        """A row for a waiting request, which begins with cached blocks."""
        self.waiting.remove(sequence)
        row = self.rows.take()
        self.running.place(sequence, row)
        set_up_row(self.rows, row, sequence, device_limit)
        cached = self.kv.adopt(row, matched)
        self.rows.submitted[row] = self.rows.computed[row] = cached
        self.kv.prefix.record(len(sequence.tokens), matched, fetched)
        if self.tiers is not None:
            self.tiers.used(matched)
        if self.disk is not None:
            self.disk.used(sequence, len(matched))
        if sequence.cached_tokens < 0:
            sequence.cached_tokens = min(cached, sequence.num_prompt)
            self.cached_prompt_tokens += sequence.cached_tokens
        self.rows.cached[row] = sequence.cached_tokens
        return row


def set_up_row(rows: RowTable, row: int, sequence: Sequence, device_limit: int) -> None:
    """Copy what every step needs to know of a sequence into the columns."""
    params = sequence.request.sampling
    rows.known[row] = len(sequence.tokens)
    rows.prompt[row] = sequence.num_prompt
    rows.limit[row] = sequence.limit
    rows.min_total[row] = sequence.num_prompt + params.min_tokens
    rows.device_limit[row] = device_limit
    rows.leaves[row] = False
    rows.order[row] = sequence.order
    rows.overtaken[row] = sequence.overtaken
    rows.tokens_before[row] = sequence.tokens_before
    rows.late[row] = params.needs_history
    rows.seed[row] = sequence.seed
    rows.temperature[row] = params.temperature
    rows.top_p[row] = params.top_p
    rows.min_p[row] = params.min_p
    rows.top_k[row] = max(0, params.top_k)
    rows.logprobs[row] = -1 if params.logprobs is None else params.logprobs
    rows.special[row] = bool(params.needs_history or params.logit_bias or params.min_tokens)
    rows.set_stop_ids(row, sequence.stop_ids)
    rows.had_late |= params.needs_history
    rows.had_careful |= params.logprobs is not None or bool(rows.many_stops[row])
