"""Which of a plan's predictions lie outside what a profile measured, in words."""

from collections.abc import Iterator

from tandem.planner.candidate import Candidate
from tandem.planner.measured_host import MeasuredHost
from tandem.planner.question import Question
from tandem.spec.layer_operations import layer_operations
from tandem.spec.parameters import movable_layer


def extrapolations(
    question: Question, candidate: Candidate, chunk: int, host: MeasuredHost
) -> Iterator[str]:
    """One line per kind; times outside the measured sizes are taken in proportion.

    Args:
        chunk: prompt tokens of a sweep.
    """
    attended = candidate.rows if question.host_only else candidate.host_rows
    surface = host.attention.surface
    context = question.lengths.context_tokens
    if attended:
        yield from _beyond("rows of decode attention", attended, surface.first)
        yield from _beyond("tokens of context", context, surface.second)
    if not (question.host_only or candidate.on_cpu):
        return
    model, linear = question.model, host.linear.surface
    matrices = [
        op.weight_elements
        for op in layer_operations(model, movable_layer(model))
        if op.kind == "linear"
    ]
    if question.host_only:
        matrices.append(model.hidden_size * model.vocab_size)
    products = candidate.rows if candidate.elsewhere.lent else max(chunk, candidate.rows)
    yield from _beyond("weights of a matrix", max(matrices), linear.first)
    yield from _beyond("rows of a product", products, linear.second)


def _beyond(what: str, size: float, measured: tuple[float, ...]) -> Iterator[str]:
    low, high = measured[0], measured[-1]
    if not low <= size <= high:
        yield f"extrapolated: {size:,.0f} {what}; measured are {low:,.0f} to {high:,.0f}"
