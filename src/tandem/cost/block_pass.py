"""How long a pass of a block takes by its terms, and which shares make it shortest.

A closed form, as a function of the sequences that there are: a pass takes as long as its busiest
resource, or, where the CPU attends, as the way of a batch through all layers with all attention on
the CPU between, its own only where layers overlap, and with what the CPU computes else; times
the slack that virtual time, or measuring, has found.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tandem.plan.share_terms import ShareTerms

_NOTHING: Mapping[tuple[bool, bool], float] = MappingProxyType({})


class PassWork(NamedTuple):
    """Sequences of a pass by what becomes of their KV, and tokens that they have together."""

    batches: int
    resident_rows: float = 0
    resident_tokens: float = 0
    streamed_rows: float = 0
    streamed_tokens: float = 0
    cpu_rows: float = 0
    cpu_tokens: float = 0

    @property
    def ways(self) -> tuple[bool, bool]:
        """Whether any KV is streamed, and any attended on the CPU: each has operations of its own,
        and waits between them, of which terms know nothing but as slack.
        """
        return self.streamed_rows > 0, self.cpu_rows > 0

    @property
    def host_rows(self) -> float:
        """With KV on the host."""
        return self.streamed_rows + self.cpu_rows

    def shared(self, share: float) -> "PassWork":
        """That share of those with KV on the host is streamed, the rest attended on the CPU."""
        rows, tokens = self.host_rows, self.streamed_tokens + self.cpu_tokens
        return self._replace(
            streamed_rows=share * rows,
            streamed_tokens=share * tokens,
            cpu_rows=(1 - share) * rows,
            cpu_tokens=(1 - share) * tokens,
        )


class PassTerms(NamedTuple):
    """What a pass asks of each resource, in seconds.

    Attributes:
        copies_s: to the accelerator, but for weights. host_s: of the CPU's attention, mlps_s: of
            layers or MLPs that it computes. reads_s: of weights from disk.
    """

    stages_s: float = 0.0
    attention_s: float = 0.0
    copies_s: float = 0.0
    weights_s: float = 0.0
    host_s: float = 0.0
    reads_s: float = 0.0
    mlps_s: float = 0.0


def pass_terms(terms: ShareTerms, work: PassWork) -> PassTerms:
    """Of that work."""
    cache_s = terms.cache.seconds(work.streamed_rows, work.streamed_tokens)
    return PassTerms(
        terms.stages_s,
        _attention_s(terms, work),
        cache_s + terms.results.seconds(work.cpu_rows, work.cpu_tokens) + terms.returns_s,
        terms.weights_s,
        terms.host.seconds(work.cpu_rows, work.cpu_tokens),
        terms.reads_s,
        terms.mlps.seconds(work.resident_rows + work.host_rows, 0),
    )


def _attention_s(terms: ShareTerms, work: PassWork) -> float:
    """On the accelerator."""
    there, apart = terms.attention, terms.streamed_attention
    if apart is None:
        rows = work.resident_rows + work.streamed_rows
        return there.seconds(rows, work.resident_tokens + work.streamed_tokens)
    resident_s = there.seconds(work.resident_rows, work.resident_tokens)
    return resident_s + apart.seconds(work.streamed_rows, work.streamed_tokens)


def pass_s(terms: ShareTerms, work: PassWork) -> float:
    """Of a pass with that work."""
    return terms.slack * longest_s(terms, work)


def longest_s(terms: ShareTerms, work: PassWork) -> float:
    """What no pass with that work can be shorter than, by these terms."""
    each = pass_terms(terms, work)
    chain_s = 0.0
    if work.cpu_rows or each.mlps_s:
        given = work.cpu_rows, work.cpu_tokens
        once_s = (terms.queries.seconds(*given) + terms.results.seconds(*given)) / work.batches
        between_s = each.host_s / work.batches if terms.layers_overlap else each.host_s
        mlps_s = each.mlps_s / work.batches
        chain_s = terms.way_s + once_s + between_s + mlps_s
    tokens = work.streamed_tokens + work.cpu_tokens
    return max(
        each.stages_s + each.attention_s,
        each.copies_s + each.weights_s,
        each.host_s + each.mlps_s,
        each.reads_s,
        chain_s,
        terms.memory.seconds(work.host_rows, tokens),
    )


def best_streamed(
    terms: ShareTerms,
    work: PassWork,
    host_rows: int,
    *,
    pinned_only: bool = True,
    slacks: Mapping[tuple[bool, bool], float] = _NOTHING,
) -> tuple[int, float]:
    """Of a batch's `host_rows` places, how many are best for streamed sequences, and how long a
    pass with the sequences that there are then takes.

    Args:
        pinned_only: no more than pinned memory is for.
        slacks: by the ways of a pass (`PassWork.ways`), as measured; of others, the terms'.
    """
    most = min(terms.most_streamed_rows, host_rows)
    if pinned_only and terms.most_pinned_rows is not None:
        most = min(most, terms.most_pinned_rows)

    def seconds(streamed: int) -> float:
        shared = work.shared(streamed / host_rows)
        return slacks.get(shared.ways, terms.slack) * longest_s(terms, shared)

    best_s, streamed = min((seconds(n), n) for n in range(most + 1))
    return streamed, best_s
