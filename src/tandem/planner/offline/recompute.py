"""How much of streamed KV to recompute, and why not more."""

from collections.abc import Iterator
from dataclasses import replace

from tandem.cost.from_model import kv_fetch
from tandem.cost.kvpr.recompute import RecomputeRates, RecomputeSplit, best_recompute
from tandem.cost.rates import accelerator_rates
from tandem.planner.offline.bound import BlockBound
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.footprint import BlockFootprint
from tandem.planner.offline.precisions import Precisions
from tandem.planner.question import Question


class Recomputes:
    """Prefixes worth trying, for one question."""

    def __init__(
        self,
        question: Question,
        precisions: Precisions,
        footprint: BlockFootprint,
        bound: BlockBound,
    ) -> None:
        self._q, self._footprint, self._bound = question, footprint, bound
        self._precisions = precisions
        self._rates = RecomputeRates(
            question.hardware.link.h2d_bytes_per_s,
            accelerator_rates(question.hardware, precisions.plain.activations).flops_per_s,
        )

    def split(self, candidate: BlockCandidate) -> RecomputeSplit:
        """KVPR's equation 12 for one batch at mean context, in blocks, with the reason."""
        page = self._footprint.host_page(candidate)
        kv_bytes = page.bytes_per_block_layer / page.block_size
        model, context = self._q.model, round(self._q.lengths.context_tokens)
        rows = max(1, candidate.streamed_rows)
        fetch = replace(
            kv_fetch(model, rows, context, self._precisions.plain.activations),
            kv_element_bytes=kv_bytes / (2 * model.kv_size),
        )
        return best_recompute(fetch, self._rates, page.block_size)

    @property
    def sees_all(self) -> bool:
        """Whether all layers see all tokens: of others, most of a prefix is not fetched anyway."""
        return not any(self._q.model.layer_windows)

    def of(self, candidate: BlockCandidate) -> Iterator[int]:
        """Numbers of tokens, whole blocks of the prompt: the equation's, and where the link and
        the accelerator are equally busy in a whole pass.
        """
        most = self._whole(min(self._footprint.prompt, self._q.lengths.context_tokens))
        if not candidate.streamed_rows or not most or not self.sees_all:
            return
        if candidate.device_kv is not None:
            return  # activations take hardly fewer bytes than keys and values in few bits
        ideal = self.split(candidate).tokens
        if not ideal:
            return  # nothing to save on the link
        found = {min(self._whole(ideal), most), self._crossing(candidate, most)}
        yield from sorted(found - {0})

    def _crossing(self, candidate: BlockCandidate, most: int) -> int:
        none = self._bound.decode_busy(candidate)
        all_ = self._bound.decode_busy(replace(candidate, recomputed_tokens=most))
        gap_s = none.link_s - none.accelerator_s
        closing_s = gap_s - (all_.link_s - all_.accelerator_s)
        share = min(1.0, max(0.0, gap_s / closing_s)) if closing_s > 0 else 0.0
        return self._whole(most * share)

    def _whole(self, tokens: float) -> int:
        size = self._footprint.page.block_size
        return int(tokens) // size * size
