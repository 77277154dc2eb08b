"""An answer's plan as a file for the engine."""

from tandem.plan.plan_file import PlanFile, PlannedModel
from tandem.planner.answer import Answer


def plan_file(model_name: str, answer: Answer, quantization: str = "auto") -> PlanFile:
    """The chosen plan, and what it was made for.

    Args:
        quantization: what the question was asked for, as the engine's flag.
    """
    question = answer.question
    precision = question.precision
    return PlanFile(
        model_name=model_name,
        model=PlannedModel.of(question.model),
        hardware=question.hardware.name,
        host_only=question.host_only,
        dtype=str(precision.weights),
        kv_cache_dtype=str(precision.kv),
        cpu_kv_dtype="auto",
        quantization=quantization,
        precision=str(precision),
        plan=answer.plan,
    )
