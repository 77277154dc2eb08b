"""Numbers of rows that are means, where what requests hold decides how many run."""

from typing import TYPE_CHECKING

from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.way import Way

if TYPE_CHECKING:
    from tandem.planner.relaxation.prices import Prices


def beyond(prices: "Prices", way: Way, rows: Rows) -> float:
    """Rows in the mean beyond the most of a range, at most up to the next whole number, with which
    another one begins: with all layers on the accelerator, as many as its memory has room for.
    """
    most = rows.through.most
    if not (prices.rows_vary and most):
        return 0.0
    if way.homes != ("resident",):
        return 1.0
    question, footprint = prices.question, prices.footprint
    used = prices.fixed_bytes(way, most, rows.cohort.least, rows.step_tokens)
    used += question.movable_layers * footprint.layer_bytes - footprint.embedding_bytes
    held = (question.device_bytes - used) / prices.row_bytes
    return min(1.0, max(0.0, held - most))
