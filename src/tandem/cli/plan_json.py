"""A plan's answer as JSON."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from tandem.cli.plan_exposure import exposure_json
from tandem.cli.plan_words import described
from tandem.planner.answer import Answer
from tandem.planner.footprint import TierUse
from tandem.planner.option import Option
from tandem.planner.relaxation.bounded import Ceiling
from tandem.planner.robustness import Best, Robustness
from tandem.spec.parameters import num_parameters
from tandem.spec.workload import Workload

FORMAT = 1


def answer_json(
    model: str, workload: Workload, answer: Answer, basis: Sequence[str]
) -> dict[str, Any]:
    """All of an answer; `plan` is an `OnlinePlan` of its own format.

    Args:
        basis: which numbers are measured and which assumed.
    """
    question = answer.question
    return {
        "format": FORMAT,
        "model": {"name": model, "parameters": num_parameters(question.model)},
        "hardware": question.hardware.name,
        "host_only": question.host_only,
        "basis": list(basis),
        "extrapolated": list(answer.extrapolated),
        "workload": {
            "name": workload.name,
            "notes": list(workload.notes),
            **question.lengths.to_object(),
        },
        "precision": str(question.precision),
        "policy": answer.policy.name,
        "objective": question.objective,
        "tpot_bound_s": question.tpot_bound_s,
        "fits_accelerator": answer.spare_bytes >= 0,
        "spare_bytes": answer.spare_bytes,
        "plan": answer.plan.to_object(),
        "memory": {"accelerator": _tier(answer.device), "host": _tier(answer.host)},
        "prediction": {
            **_option(answer, answer.chosen),
            "request_s": answer.request_s,
            "main_request_s": answer.main_request_s,
            "cohort_request_s": answer.cohort_request_s,
            "job_s": answer.job_s,
            "decode_sweep": asdict(answer.chosen.prediction.decode),
        },
        "ceiling": None if answer.ceiling is None else _ceiling(answer, answer.ceiling),
        "arrivals": None if answer.arrivals is None else asdict(answer.arrivals),
        "alternatives": [_option(answer, option) for option in answer.alternatives],
        "sensitivities": [
            {
                "change": entry.change,
                "gain": entry.gain,
                "base_job_tokens_per_s": entry.base.tokens_per_s,
                **_option(answer, entry.option),
            }
            for entry in answer.sensitivities
        ],
        "policies": [
            {
                "policy": result.policy.name,
                "source": result.policy.source,
                **({} if result.option is None else _option(answer, result.option)),
                "fits": result.option is not None,
            }
            for result in answer.policies
        ],
        "exposure": None if answer.exposure is None else exposure_json(answer.exposure),
        "robustness": None
        if answer.robustness is None
        else robustness_json(answer.robustness, lambda option: _option(answer, option)),
    }


def _ceiling(answer: Answer, found: Ceiling) -> dict[str, Any]:
    best = found.best
    return {
        "tokens_per_s": found.tokens_per_s,
        "reached": answer.chosen.prediction.rates.tokens_per_s / found.tokens_per_s,
        "programmes": found.programmes,
        "at": None
        if best is None
        else {
            "strategy": best.way.strategy,
            "passes": best.way.passes,
            "layers": dict(best.shares.layers),
            "hosted": best.shares.hosted,
            "rows": best.rows.through._asdict(),
            "cohort_rows": best.rows.cohort._asdict(),
            "max_num_batched_tokens": answer.question.step_of(best.rows.step_tokens),
        },
    }


def robustness_json(
    found: Robustness[Best], described: Callable[[Best], dict[str, Any]]
) -> dict[str, Any]:
    """A plan under wrong numbers.

    Args:
        described: an option, as it is written elsewhere.
    """
    return {
        "decisive": found.decisive,
        "worst_regret": found.worst.regret,
        "fragile": [dict(case.errors) for case in found.fragile],
        "cases": [
            {
                "errors": dict(case.errors),
                "plan_tokens_per_s": case.plan_tokens_per_s,
                "plan_in_time": case.plan_in_time,
                "alternatives_tokens_per_s": list(case.rivals_tokens_per_s),
                "best": None if case.best is None else described(case.best),
                "regret": case.regret,
            }
            for case in found.cases
        ],
    }


def _tier(use: TierUse) -> dict[str, int]:
    return {**asdict(use), "free_bytes": use.free_bytes}


def _option(answer: Answer, option: Option) -> dict[str, Any]:
    rates = option.prediction.rates
    return {
        "candidate": option.candidate._asdict(),
        "description": described(answer.question, option),
        **asdict(rates),
        "job_tokens_per_s": option.tokens_per_s,
        "in_step_tpot_s": option.in_step_tpot_s,
        "in_step_slow_tpot_s": option.in_step_slow_tpot_s,
        "bound_tokens_per_s": option.prediction.bound_tokens_per_s,
        "busy": dict(option.prediction.busy),
        "bottleneck": option.prediction.bottleneck[0],
    }
