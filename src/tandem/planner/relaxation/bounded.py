"""What the linear programmes found: all that is read of it where others solve them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tandem.planner.relaxation.homes import LayerHome
from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.way import Way

if TYPE_CHECKING:  # of the solver, which most processes have no use for
    from tandem.planner.relaxation.highs import Basis


class Start(NamedTuple):
    """The basis of a programme of so many rows and columns."""

    size: tuple[int, int]
    basis: "Basis"


@dataclass(frozen=True, slots=True)
class Shares:
    """The optimum for some rows.

    Attributes:
        token_s: per output token, of all requests; alone, of the request's.
        layers: how many have which home.
        hosted: share of the KV that lies on the host, of rows that take part in all layers.
        start: where the programmes of ranges near by may begin; None: that is of no interest.
    """

    token_s: float
    layers: Mapping[LayerHome, float]
    hosted: float
    start: Start | None


@dataclass(frozen=True, slots=True)
class Bounded:
    """Some rows of one way.

    Attributes:
        tokens_per_s: that nothing of it exceeds.
    """

    way: Way
    rows: Rows
    tokens_per_s: float
    shares: Shares


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What no plan exceeds.

    Attributes:
        ranges: of rows, the most promising ones, that which reaches it first; none: nothing fits.
        programmes: how many were solved.
    """

    ranges: tuple[Bounded, ...]
    programmes: int

    @property
    def best(self) -> Bounded | None:
        """The range that reaches it; None: nothing fits."""
        return self.ranges[0] if self.ranges else None

    @property
    def tokens_per_s(self) -> float:
        """Of any plan; with one request at a time, the inverse of latency."""
        return 0.0 if self.best is None else self.best.tokens_per_s
