"""What one sweep carries, of a candidate in the mean."""

from typing import NamedTuple

from tandem.planner.candidate import Candidate
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.question import Lengths


class SweepLoad(NamedTuple):
    """What one sweep carries: its main lane, and a cohort that passes through.

    Attributes:
        cohort: rows with KV on the host that advance by one layer: of the cohorts, the one whose
            turn it is.
        passes: of its own, that it may have. halves: another one as large takes part as well.
        ahead: another one as large joins as well, at another layer.
    """

    main: LaneLoad
    cohort: LaneLoad | None = None
    passes: int = 0
    halves: bool = False
    ahead: bool = False

    @property
    def lanes(self) -> list[LaneLoad]:
        """Those of the program: a cohort may go alone, through one layer. Where it has several
        lanes, they are taken for one, the second.
        """
        if self.cohort is None:
            return [self.main]
        if self.ahead:
            return [self.main, self.cohort, self.cohort]
        return [self.main, self.cohort] if self.main.tokens or self.passes else [self.cohort]

    @property
    def decodes_only(self) -> bool:
        """No prompt is read, and no cohort passes: small enough for rules about small steps."""
        return not (self.cohort or self.main.device.chunk or self.main.host.chunk)


class Loads:
    """Of candidates of one question; those with the same requests in the same places share one."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths
        self._made: dict[tuple[object, ...], SweepLoad] = {}

    def of(
        self,
        candidate: Candidate,
        chunk: int = 0,
        host_chunk: bool = False,
        *,
        filled: bool = False,
    ) -> SweepLoad:
        """As `decode_load`.

        Args:
            filled: as in `LaneLoad`.
        """
        rows = candidate.device_rows, candidate.host_rows, candidate.device_share
        key = (candidate.strategy, rows, candidate.passes, chunk, host_chunk, filled)
        made = self._made.get(key)
        if made is None:
            made = decode_load(candidate, self._lengths, chunk, host_chunk)
            if filled:
                made = made._replace(main=made.main._replace(filled=True))
            self._made[key] = made
        return made


def decode_load(
    candidate: Candidate, lengths: Lengths, chunk: int = 0, host_chunk: bool = False
) -> SweepLoad:
    """All rows decode one token; `chunk` tokens of prompts in one tier beside them."""
    device_chunk, host_tokens = (0, chunk) if host_chunk else (chunk, 0)
    context = lengths.context_tokens
    # half of a prompt lies before its mean token; a chunk may be less than one, or several;
    # most tokens are those of long prompts
    offset = (lengths.prompt_seen_tokens - chunk) / 2 if chunk else 0.0
    rides = candidate.host_rows if candidate.strategy == "ride-along" else 0
    if candidate.device_share:
        share = candidate.device_share
        part = TierLoad(rides, context, chunk, offset, share)
        logits = rides + (1 if chunk else 0)
        main = LaneLoad(part, part._replace(share=1 - share), logits, split=part.tokens)
        return SweepLoad(main)
    main = LaneLoad(
        TierLoad(candidate.device_rows, context, device_chunk, offset),
        TierLoad(rides, context, host_tokens, offset),
        logits=candidate.device_rows + rides + (1 if chunk else 0),
    )
    if not candidate.has_cohorts:
        return SweepLoad(main)
    rows = candidate.cohort_rows
    logits = rows if candidate.passes else 0  # else the sweeps that are timed end no token
    cohort = LaneLoad(host=TierLoad(rows, context), logits=logits)
    passes = candidate.passes if main.tokens or candidate.halves else 0
    return SweepLoad(main, cohort, passes, candidate.halves, candidate.ahead)
