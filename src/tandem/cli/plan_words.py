"""A plan in a line."""

from tandem.planner.option import Option
from tandem.planner.question import Question


def described(question: Question, option: Option) -> str:
    """A plan in a line; on the host alone, no word of an accelerator."""
    candidate, layers = option.candidate, question.model.num_layers
    if question.host_only:
        rows = "1 request" if candidate.rows == 1 else f"{candidate.rows} requests"
        weights = candidate.elsewhere.describe(layers)
        return f"the host alone: {weights}, {rows}{candidate.steps_text}"
    return candidate.describe(layers)
