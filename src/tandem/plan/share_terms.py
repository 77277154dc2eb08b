"""What a pass of a block takes, term by term: by this an engine solves shares anew as it runs.

Of a plan's sequences with KV on the host, any number may be streamed and the others attended on the
CPU: their pages lie in the same memory, so that no byte moves when one becomes the other.
"""

import math
from dataclasses import dataclass, field
from typing import Any, cast

from tandem.plan.plan_object import made_of
from tandem.spec import forms
from tandem.spec.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TermLine:
    """Seconds of one kind of work in a pass: a part that any work brings, of each sequence, and of
    each token of theirs.
    """

    start_s: float = 0.0
    row_s: float = 0.0
    token_s: float = 0.0

    def __post_init__(self) -> None:
        _require_seconds(self, ("start_s", "row_s", "token_s"))

    def seconds(self, rows: float, tokens: float) -> float:
        """Of so many sequences with so many tokens together."""
        return self.start_s + self.row_s * rows + self.token_s * tokens if rows else 0.0

    def times(self, factor: float) -> "TermLine":
        """All of it longer."""
        return TermLine(factor * self.start_s, factor * self.row_s, factor * self.token_s)


@dataclass(frozen=True, slots=True)
class ShareTerms:
    """Of a pass over all batches, each term as if alone on the machine.

    Attributes:
        most_streamed_rows: of a batch, those for whose KV the slots have room. most_pinned_rows:
            likewise, that may lie in pinned memory; None: any.
        stages_s: of the accelerator, without attention. weights_s: layers that come over the link.
            reads_s: those of them that are read from disk before.
        way_s: of a batch through a pass on the accelerator, but for attention, and to the CPU and
            back where that computes a layer or an MLP.
        slack: a pass over the longest of its terms.
        attention: on the accelerator. cache: streamed keys and values over the link.
            streamed_attention: on the accelerator, to those, where it is a kernel of its own; None:
            they are among `attention`'s.
        queries, results: to the CPU and back. host: its attention.
        memory: what the host's memory is read for, by whichever way; the weights are its start.
        mlps: of the CPU, layers or MLPs that it computes. returns_s: what it has made of them, over
            the link to the accelerator.
        layers_overlap: the CPU attends to other batches while one is between two layers.

    Raises:
        ConfigError: a value of another type or out of range.
    """

    most_streamed_rows: int
    stages_s: float
    weights_s: float
    way_s: float
    slack: float
    attention: TermLine
    cache: TermLine
    queries: TermLine
    results: TermLine
    host: TermLine
    memory: TermLine
    layers_overlap: bool = False
    reads_s: float = 0.0
    mlps: TermLine = field(default_factory=TermLine)
    returns_s: float = 0.0
    most_pinned_rows: int | None = None
    streamed_attention: TermLine | None = None

    def __post_init__(self) -> None:
        most = forms.in_form(
            self.most_streamed_rows, forms.whole_number, "most_streamed_rows", ConfigError
        )
        if most < 0:
            raise ConfigError(f"most_streamed_rows must be at least 0, not {most}")
        if self.most_pinned_rows is not None:
            pinned = forms.in_form(
                self.most_pinned_rows, forms.whole_number, "most_pinned_rows", ConfigError
            )
            if pinned < 0:
                raise ConfigError(f"most_pinned_rows must be at least 0, not {pinned}")
        _require_seconds(self, _SECONDS)
        forms.in_form(self.layers_overlap, forms.flag, "layers_overlap", ConfigError)
        if not self.slack:
            raise ConfigError("slack must be above 0")

    @staticmethod
    def from_object(given: Any) -> "ShareTerms":
        """What `dataclasses.asdict` made of it.

        Raises:
            ConfigError: it is none.
        """
        if not isinstance(given, dict):
            raise ConfigError(f"terms must be an object, not {forms.shown(given)}")
        values = {**cast("dict[str, Any]", given)}
        for name in (*_LINES, *(name for name in _NEWER if values.get(name) is not None)):
            values[name] = made_of(TermLine, values.get(name), f"terms.{name}")
        return made_of(ShareTerms, values, "terms")


_SECONDS = ("stages_s", "weights_s", "reads_s", "returns_s", "way_s", "slack")
_LINES = ("attention", "cache", "queries", "results", "host", "memory")
_NEWER = ("mlps", "streamed_attention")


def _require_seconds(owner: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = forms.in_form(getattr(owner, name), forms.number, name, ConfigError)
        if not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be at least 0 and finite, not {value}")
