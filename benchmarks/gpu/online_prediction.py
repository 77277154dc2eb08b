"""What planner and simulator say of online cells from this machine's profile, beside what was
executed: a job that begins, and is cut short, where they know a steady state.

Plans need `highspy`, which machines with a GPU and no network may lack: this is imported alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks.gpu.cases import CaseError
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.gain import executed_per_s, median_error, ratio_row
from benchmarks.gpu.kept import ALONE
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.stored import stored_profile

from tandem.bench.online.cell import Load
from tandem.bench.online.plans import ask, plan_policies
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats
from tandem.spec.units import parse_size

NOTHING_PREDICTED = "nothing was executed of which a plan fits"
_BITS = {"int8": 8, "int4": 4}


def add_predictions(
    case: str,
    policies: Sequence[str],
    config: EngineConfig,
    spec: ModelSpec,
    scale: Scale,
    found: Findings,
) -> None:
    """Rows of ratios, and their median error.

    Args:
        case: of the rows of what was executed. config: of an engine that uses both memories.

    Raises:
        ConfigError: there is no profile.
        CaseError: nothing was executed.
    """
    dtype = scale.dtype
    # where the host does the maths, activations are in float32 (ADR 0010)
    activations = dtype if scale.accelerator == "cuda" else DType.FLOAT32
    kind = config.quantization
    formats = uniform_formats(spec, _BITS[kind], None) if kind in _BITS else {}
    load = Load(scale.prompt_tokens, scale.new_tokens)
    question = ask(
        stored_profile(), spec, load.workload(), parse_size(config.cpu_memory, param="cpu_memory"),
        config.max_num_batched_tokens,
    )  # fmt: skip
    question = replace(
        question,
        device_bytes=parse_size(config.gpu_memory, param="gpu_memory"),
        precision=Precision(weights=dtype, activations=activations, kv=dtype, quantized=formats),
    )
    told = False
    for planned in plan_policies(question, policies):
        executed = _executed(found, case, planned.policy)
        if executed is None:
            continue
        if planned.option is None or planned.plan is None:
            found.note(f"{case}: nothing fits by policy {planned.policy}")
            continue
        told = True
        predicted = planned.option.prediction.rates.tokens_per_s
        simulated = steady_tokens_per_s(planned, load, scale.window_s)
        found.add(
            ratio_row(case, planned.policy, "predicted", predicted, executed),
            ratio_row(case, planned.policy, "simulated", simulated, executed),
        )
    if not told:
        raise CaseError(NOTHING_PREDICTED)
    errors = (median_error(found, case, source) for source in ("predicted", "simulated"))
    found.add(*(row for row in errors if row is not None))


def _executed(found: Findings, case: str, policy: str) -> float | None:
    """Tokens per second; the accelerator alone ran beside others, in turns."""
    if policy != ALONE:
        return executed_per_s(found, case, policy)
    beside = [
        row.value
        for row in found.rows
        if (row.case, row.metric) == (case, "throughput") and row.variant.startswith(f"{ALONE}, ")
    ]
    return median(beside) if beside else None
