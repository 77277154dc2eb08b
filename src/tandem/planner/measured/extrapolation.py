"""Which of a plan's predictions lie outside what a profile measured, in words."""

from collections.abc import Iterator, Sequence

from tandem.planner.candidate import Candidate
from tandem.planner.demand import Demands
from tandem.planner.question import Question
from tandem.profiling.measurements import LinearTimes
from tandem.profiling.surface import Surface
from tandem.spec.layer_operations import layer_operations
from tandem.spec.parameters import movable_layer


def extrapolations(
    question: Question, candidate: Candidate, chunk: int, demands: Demands
) -> Iterator[str]:
    """One line per kind; times outside the measured sizes are taken in proportion.

    Args:
        chunk: prompt tokens of a sweep.
    """
    host, card = demands.measured, demands.card
    if host is not None:
        attended = candidate.rows if question.host_only else candidate.host_rows
        yield from _attention("", question, attended, host.attention.surface)
        if question.host_only or candidate.on_cpu:
            products = candidate.rows if candidate.elsewhere.lent else max(chunk, candidate.rows)
            head = question.host_only
            yield from _products("", question, host.linear, products, head=head)
    if card is not None:
        where = " on the accelerator"
        yield from _attention(where, question, candidate.device_rows, card.attention.surface)
        yield from _products(where, question, card.linear, max(chunk, candidate.rows), head=True)
        prompts = card.prompts.surface.second
        if chunk and question.lengths.prompt_tokens > prompts[-1]:
            yield from _beyond(
                f"tokens of a prompt{where}", question.lengths.prompt_tokens, prompts
            )


def _attention(where: str, question: Question, rows: int, measured: Surface) -> Iterator[str]:
    if rows:
        context = question.lengths.context_tokens
        yield from _beyond(f"rows of decode attention{where}", rows, measured.first)
        yield from _beyond(f"tokens of context{where}", context, measured.second)


def _products(
    where: str, question: Question, measured: LinearTimes, rows: int, *, head: bool
) -> Iterator[str]:
    """Of the layers' matrices.

    Args:
        head: of the head as well.
    """
    model = question.model
    matrices = [
        op.weight_elements
        for op in layer_operations(model, movable_layer(model))
        if op.kind == "linear"
    ]
    if head:
        matrices.append(model.hidden_size * model.vocab_size)
    yield from _beyond(f"weights of a matrix{where}", max(matrices), measured.surface.first)
    yield from _beyond(f"rows of a product{where}", rows, measured.surface.second)


def _beyond(what: str, size: float, measured: Sequence[float]) -> Iterator[str]:
    low, high = measured[0], measured[-1]
    if not low <= size <= high:
        yield f"extrapolated: {size:,.0f} {what}; measured are {low:,.0f} to {high:,.0f}"
