"""A published gain beside the planner's: by the paper's policy, by `auto`, and at most."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tandem.bench.papers.asked import AUTO, BASELINE, RESIDENT, Speeds
from tandem.bench.papers.cells import PaperCell, Role

MISSING = "missing: "
"""Begins the note of a cell that nobody can predict, before the fact that it lacks."""
PLANNER = "planner"
CEILING = "no plan exceeds"
_FLAT = 0.005
"""Gains below this are not worth a word."""


@dataclass(frozen=True, slots=True)
class PublishedGain:
    """One of a paper's figures.

    Attributes:
        policy: the paper's own. over: what it gains on.
        assumed: what the paper does not say and the prediction rests on.
    """

    paper: str
    place: str
    cell: str
    published: float
    policy: str
    role: Role
    over: str = BASELINE
    assumed: str = ""

    def cells(self, found: Sequence[Speeds]) -> Iterator[PaperCell]:
        """Its largest predicted gain over several lengths of outputs; over the accelerator alone,
        also over layers that are all resident, what `auto` gains, and what no plan exceeds.
        """
        best = max(found, key=lambda each: each.gain(self.policy, self.over))
        several = len(found) > 1
        yield self._cell(
            f"{PLANNER}, {self.policy}",
            best.gain(self.policy, self.over),
            self._note(best, several),
            self.role,
        )
        if self.over != BASELINE:
            return
        plain = max(found, key=lambda each: each.gain(self.policy, RESIDENT))
        note = _joined(_at(plain, several), _alone(plain))
        gain = plain.gain(self.policy, RESIDENT)
        yield self._cell(f"{PLANNER}, {self.policy} over resident layers", gain, note)
        most = max(found, key=lambda each: each.gain(AUTO))
        yield self._cell(f"{PLANNER}, {AUTO}", most.gain(AUTO), _at(most, several))
        widest = max(found, key=lambda each: each.ceiling_gain)
        yield self._cell(CEILING, widest.ceiling_gain, _at(widest, several))

    def _note(self, found: Speeds, several: bool) -> str:
        rates = found.by_policy
        told = f"{rates[self.policy]:.0f} over {rates[self.over]:.0f} tokens/s"
        at = _at(found, several)
        assumed = f"assumed: {self.assumed}" if self.assumed else ""
        return _joined(f"{told} {at}".rstrip(), assumed)

    def _cell(
        self, predictor: str, predicted: float, note: str, role: Role = Role.WHAT_IF
    ) -> PaperCell:
        return PaperCell(
            self.paper,
            self.place,
            self.cell,
            "share",
            predicted,
            self.published,
            role,
            predictor,
            note,
        )


def _at(found: Speeds, several: bool) -> str:
    """Which outputs, where there were several."""
    return f"at {found.generate_tokens:.0f} out" if several else ""


def _alone(found: Speeds) -> str:
    """How much better the baseline is here than the papers', where it is."""
    gain = found.gain(BASELINE, RESIDENT)
    if gain < _FLAT:
        return ""
    return f"streaming layers, the accelerator alone is {gain:.0%} faster"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def unpredicted(paper: str, place: str, cell: str, published: float, fact: str) -> PaperCell:
    """A published gain that lacks a fact without which nobody can predict it."""
    return PaperCell(
        paper, place, cell, "share", None, published, Role.LISTED, PLANNER, MISSING + fact
    )
