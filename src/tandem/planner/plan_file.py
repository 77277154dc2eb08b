"""A plan as a file for the engine."""

from dataclasses import replace

from tandem.plan.offline import OfflinePlan
from tandem.plan.online import OnlinePlan
from tandem.plan.plan_file import PlanFile, PlannedModel
from tandem.planner.offline.precisions import Precisions
from tandem.planner.question import Question
from tandem.spec.kv_type import CodeType, parse_kv_type
from tandem.spec.precision import Precision


def plan_file(
    model_name: str, question: Question, plan: OnlinePlan, quantization: str = "auto"
) -> PlanFile:
    """A plan, and what it was made for.

    Args:
        quantization: what the question was asked for, as the engine's flag.
    """
    return _file(model_name, question, question.precision, quantization, plan)


def offline_plan_file(
    model_name: str, question: Question, plan: OfflinePlan, quantization: str = "auto"
) -> PlanFile:
    """The same of an offline plan, which has few bits only where it says so."""
    few = plan.quantized_layers != "none"
    precision = Precisions.of(question.precision).of_layer("all" if few else "none", streamed=True)
    kept = parse_kv_type(plan.kv_dtype, "kv_cache_dtype")
    if isinstance(kept, CodeType):
        precision = replace(precision, kv=kept)
    if plan.host_kv_dtype != plan.kv_dtype:
        kept = parse_kv_type(plan.host_kv_dtype, "cpu_kv_dtype")
        precision = replace(precision, host_kv=kept)
    file = _file(model_name, question, precision, quantization if few else "none", plan)
    return replace(file, machine=question.hardware)


def _file(
    model_name: str,
    question: Question,
    precision: Precision,
    quantization: str,
    plan: OnlinePlan | OfflinePlan,
) -> PlanFile:
    return PlanFile(
        model_name=model_name,
        model=PlannedModel.of(question.model),
        hardware=question.hardware.name,
        host_only=question.host_only,
        dtype=str(precision.weights),
        kv_cache_dtype=str(precision.kv),
        cpu_kv_dtype="auto" if precision.host_kv is None else str(precision.host_kv),
        quantization=quantization,
        precision=str(precision),
        plan=plan,
    )
