"""What one sweep carries, of a candidate in the mean."""

from typing import NamedTuple

from tandem.cost.varying_rows import VaryingRows
from tandem.planner.candidate import COHORTS, Candidate
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
    def num_cohorts(self) -> int:
        """Of which `cohort` is one."""
        if self.cohort is None:
            return 0
        return COHORTS if self.main.tokens or self.halves else 1

    @property
    def decodes_only(self) -> bool:
        """No prompt is read, and no cohort passes: small enough for rules about small steps."""
        return not (self.cohort or self.main.device.chunk or self.main.host.chunk)


class Loads:
    """Of candidates of one question; those with the same requests in the same places share one.

    Args:
        tiled: whether the accelerator's linear maps compute rows in tiles.

    Attributes:
        tiled: likewise, and prompts are so short that tiles are told apart by their rows.
    """

    def __init__(self, lengths: Lengths, *, tiled: bool = False) -> None:
        self._lengths, self.tiled = lengths, tiled and lengths.prompts_are_rows
        self._made: dict[tuple[object, ...], SweepLoad] = {}

    def of(
        self,
        candidate: Candidate,
        chunk: int = 0,
        host_chunk: bool = False,
        *,
        filled: bool = False,
        places: int = 0,
    ) -> SweepLoad:
        """As `decode_load`.

        Args:
            filled: as in `LaneLoad`.
            places: of all requests that run, of which these decode; 0: tiles are not told apart.
        """
        rows = candidate.device_rows, candidate.host_rows, candidate.device_share
        places = places if self.tiled and not filled else 0
        key = (candidate.strategy, rows, candidate.passes, chunk, host_chunk, filled, places)
        made = self._made.get(key)
        if made is None:
            made = decode_load(candidate, self._lengths, chunk, host_chunk, filled=filled)
            if places:
                made = self._varying(made, places, chunk, beside=host_chunk)
            self._made[key] = made
        return made

    def _varying(self, load: SweepLoad, places: int, chunk: int, *, beside: bool) -> SweepLoad:
        """A place is empty for one sweep after each request, or for one token of its cohort: the
        next sweep has been submitted when its end is known.

        Args:
            beside: what a sweep reads is for requests of cohorts, if there are any.
        """
        main, cohort = load.main, load.cohort
        decoding, hosted = main.tokens - chunk, 0
        if cohort is not None:
            hosted = cohort.tokens
            places -= load.num_cohorts * hosted
            cohort = cohort._replace(varying=self._of_places(hosted, hosted))
        # whoever begins to read has a place in which nobody decodes
        begun = 0
        if chunk and not (beside and cohort is not None):
            begun = min(decoding, max(1, round(chunk / self._lengths.prompt_tokens)))
        most = max(decoding, places) - begun + chunk
        main = main._replace(varying=self._of_places(most, decoding))
        return load._replace(main=main, cohort=cohort)

    def _of_places(self, most: int, rows: int) -> VaryingRows:
        return VaryingRows(most, rows / self._lengths.decode_sweeps)


def decode_load(
    candidate: Candidate,
    lengths: Lengths,
    chunk: int = 0,
    host_chunk: bool = False,
    *,
    filled: bool = False,
) -> SweepLoad:
    """All rows decode one token; `chunk` tokens of prompts in one tier beside them.

    Args:
        filled: as in `LaneLoad`.
    """
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
        there = part._replace(share=1 - share)
        main = LaneLoad(part, there, logits, split=part.tokens, filled=filled)
        return SweepLoad(main)
    main = LaneLoad(
        TierLoad(candidate.device_rows, context, device_chunk, offset),
        TierLoad(rides, context, host_tokens, offset),
        logits=candidate.device_rows + rides + (1 if chunk else 0),
        filled=filled,
    )
    if not candidate.has_cohorts:
        return SweepLoad(main)
    rows = candidate.cohort_rows
    logits = rows if candidate.passes else 0  # else the sweeps that are timed end no token
    cohort = LaneLoad(host=TierLoad(rows, context), logits=logits)
    passes = candidate.passes if main.tokens or candidate.halves else 0
    return SweepLoad(main, cohort, passes, candidate.halves, candidate.ahead)
