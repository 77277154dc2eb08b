"""Options of a search, and how they stand to each other."""

from dataclasses import dataclass, replace

from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.rates import BlockPrediction

BETTER = 1 + 1e-9
"""Times the tokens per second: what is less is the same."""
_NEAR = 0.9


@dataclass(frozen=True, slots=True)
class BlockOption:
    """A candidate with its prediction."""

    candidate: BlockCandidate
    prediction: BlockPrediction

    @property
    def tokens_per_s(self) -> float:
        """Over the whole job: what options are ranked by."""
        return self.prediction.rates.tokens_per_s


def family_of(candidate: BlockCandidate) -> tuple[bool, bool, bool]:
    """One batch or more, whether only MLPs are elsewhere, and whether KV on the accelerator is in
    few bits: small changes lead to no other.
    """
    return candidate.batches == 1, candidate.mlps, candidate.device_kv is not None


def kind_of(candidate: BlockCandidate) -> tuple[bool, ...]:
    """By what is streamed, also from disk, or the CPU's, where KV lies, what is recomputed and in
    few bits, one batch or more.
    """
    return (
        candidate.streamed > 0,
        candidate.on_disk > 0,
        candidate.lent > 0,
        candidate.columns > 0,
        candidate.attention_maps,
        candidate.resident_rows > 0,
        candidate.streamed_rows > 0,
        candidate.cpu_rows > 0,
        candidate.recomputed_tokens > 0,
        candidate.quantized != "none",
        candidate.host_kv is not None,
        candidate.device_kv is not None,
        candidate.batches > 1,
    )


def is_beside(one: BlockCandidate, other: BlockCandidate) -> bool:
    """Whether they differ by a sequence of each batch and home at most, and by nothing else."""
    homes = [(c.resident_rows, c.streamed_rows, c.cpu_rows) for c in (one, other)]
    near = all(abs(here - there) <= 1 for here, there in zip(*homes, strict=True))
    return near and replace(one, resident_rows=0, streamed_rows=0, cpu_rows=0) == replace(
        other, resident_rows=0, streamed_rows=0, cpu_rows=0
    )


def may_lead(most_per_s: float, best: BlockOption, alike: BlockOption | None) -> bool:
    """Whether a candidate may be better than the best that is like it, of its family, and small
    changes of it better than all.
    """
    alike_per_s = 0.0 if alike is None else alike.tokens_per_s * BETTER
    return most_per_s > alike_per_s and is_near(most_per_s, best)


def is_near(tokens_per_s: float, best: BlockOption) -> bool:
    """Whether small changes of what makes or promises so much may be better than the best."""
    return tokens_per_s > best.tokens_per_s * _NEAR


def better(best: BlockOption | None, option: BlockOption | None) -> BlockOption | None:
    """The one of more tokens per second, the best so far where both are as good."""
    if option is None or (best is not None and option.tokens_per_s <= best.tokens_per_s * BETTER):
        return best
    return option
