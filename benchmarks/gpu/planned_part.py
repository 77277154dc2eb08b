"""What the planner predicts from this machine's profile, and what its plans do when executed.

Plans need `highspy`, which machines with a GPU and no network may lack: nothing else imports this.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import Case, CaseError, run_cases
from benchmarks.gpu.cells import PlannedCell
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.flexgen_peer import (
    NOT_THERE,
    SETTINGS,
    FlexGenBlock,
    FlexGenSetting,
    find_flexgen,
    flexgen_tokens_per_s,
)
from benchmarks.gpu.gain import executed_per_s, gain_rows, median_error, ratio_metric, ratio_row
from benchmarks.gpu.jobs import ModelFolder, built
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.stored import stored_profile

from tandem.bench.host_case import HostCase
from tandem.bench.offline.plans import PlannedJob, ceiling_at, plan_jobs
from tandem.bench.online.cell import DTYPE, Load
from tandem.bench.online.closed_loop import ClosedLoop
from tandem.bench.online.plans import Planned, ask, plan_policies
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.bench.records import BenchRow, row_of_samples
from tandem.engine.building.blocks import build_block_core
from tandem.engine.sizing.plan_options import engine_config
from tandem.plan.plan_file import PlanFile
from tandem.planner.footprint import Footprint
from tandem.planner.plan_file import offline_plan_file, plan_file
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.units import format_size
from tandem.spec.workload import Workload

_EXACT = 1.0
_ALONE = "gpu-only"
PEER = "transformers, accelerate, offloaded cache"
_FLEXGEN_MODELS = "opt-"
_PEER_ROWS = 32  # at once: it does not choose; one such batch stands for the job
_BATCHED_TOKENS = 2048
_BITS = {"int8": 8, "int4": 4}
_SETTLING = 0.25  # of a window, before it
_FIRST_TOKEN, _TOKENS = 3, 61


def measure_planned(cell: PlannedCell, scale: Scale, limit: Deadline, found: Findings) -> None:
    """Plans of the policies for requests as they come, each executed in its steady state.

    Raises:
        ConfigError: there is no profile.
    """
    with ModelFolder(cell.shape, DTYPE) as model:
        load = Load(cell.prompt_tokens, cell.new_tokens)
        workload = load.workload()
        question = _question(cell, scale, model.spec, workload)
        asked = plan_policies(question, cell.policies)
        plans = [each for each in asked if each.plan is not None]
        _note_refused(cell, [each.policy for each in asked if each.plan is None], found)

        def execute(planned: Planned, share: Deadline) -> None:
            _execute(cell, scale, model, question, planned, workload, share, found)

        def simulate(planned: Planned, share: Deadline) -> None:
            del share  # in virtual time, some seconds
            executed = _executed(cell, planned.policy, found)
            expected = steady_tokens_per_s(planned, load, scale.window_s)
            found.add(ratio_row(_case(cell), planned.policy, "simulated", expected, executed))

        def gains(share: Deadline) -> None:
            del share
            _add_gains(cell, question, [each.policy for each in plans], found)

        cases: dict[str, Case] = {each.policy: partial(execute, each) for each in plans}
        cases |= {f"{each.policy}, simulated": partial(simulate, each) for each in plans}
        run_cases(cases | {"gains, median errors": gains}, limit, found)


def _executed(cell: PlannedCell, policy: str, found: Findings) -> float:
    """Tokens per second.

    Raises:
        CaseError: its plan was not executed.
    """
    executed = executed_per_s(found, _case(cell), policy)
    if executed is None:
        raise CaseError(f"the plan of {policy} was not executed")
    return executed


def _add_gains(
    cell: PlannedCell, question: Question, policies: Sequence[str], found: Findings
) -> None:
    """Over the accelerator alone, of what the linear programme at the profile's rates allows."""
    case = _case(cell)
    found.add(
        *(
            row
            for row in (median_error(found, case, each) for each in ("predicted", "simulated"))
            if row is not None
        )
    )
    alone = _executed(cell, _ALONE, found)
    rates = replace(question, measured=None)
    ceilings = Ceilings(rates, Footprint(rates), POLICIES["auto"], executed=True)
    most = ceilings.ceiling().tokens_per_s
    for policy in policies:
        rate = executed_per_s(found, case, policy)
        if policy != _ALONE and rate is not None:
            who = f"{policy} over {_ALONE}"
            found.add(*gain_rows(case, who, rate / alone, most / alone))


def _execute(
    cell: PlannedCell,
    scale: Scale,
    model: ModelFolder,
    question: Question,
    planned: Planned,
    workload: Workload,
    limit: Deadline,
    found: Findings,
) -> None:
    assert planned.plan is not None
    assert planned.option is not None
    file = plan_file(cell.shape.name, question, planned.plan)
    with closing(built(_config(scale, model.path, file, question))) as core:
        plan = planned.plan
        rows, most = planned.counted_rows, plan.max_num_seqs
        loop = ClosedLoop(core, workload, rows, most, plan.max_num_batched_tokens)
        loop.fill()
        _emitted_per_s(loop, _SETTLING * scale.window_s)
        rates = [_emitted_per_s(loop, scale.window_s) for _ in limit.rounds(scale.rounds)]
    predicted = planned.option.prediction.rates.tokens_per_s
    found.add(*_rows(_case(cell), planned.policy, predicted, rates))


def measure_offline(cell: PlannedCell, scale: Scale, limit: Deadline, found: Findings) -> None:
    """Batch jobs by the plan of each offline policy.

    Raises:
        ConfigError: there is no profile.
    """
    with ModelFolder(cell.shape, DTYPE) as model:
        workload = Load(cell.prompt_tokens, cell.new_tokens).workload(cell.requests)
        question = _question(cell, scale, model.spec, workload)
        planned, ceiling = plan_jobs(question, cell.policies), ceiling_at(question)
        jobs = [job for job in planned if job.plan is not None]
        _note_refused(cell, [job.policy for job in planned if job.plan is None], found)
        most = None if ceiling is None else ceiling.tokens_per_s

        def execute(job: PlannedJob, share: Deadline) -> None:
            assert job.plan is not None
            assert job.option is not None
            file = offline_plan_file(cell.shape.name, question, job.plan, cell.quantization)
            config = _config(scale, model.path, file, question)
            # each to its end
            rates = [_run_blocks(config, file, workload) for _ in share.rounds(scale.rounds)]
            predicted = job.option.prediction.rates.tokens_per_s
            found.add(*_rows(_case(cell), job.policy, predicted, rates, most))

        def errors(share: Deadline) -> None:
            del share
            error = median_error(found, _case(cell), "predicted")
            if error is not None:
                found.add(error)

        def peer(share: Deadline) -> None:
            del share
            found.add(_peer_row(cell, model))

        def flexgen(setting: FlexGenSetting, share: Deadline) -> None:
            del share
            found.add(_flexgen_row(cell, model, question.precision, setting))

        cases: dict[str, Case] = {job.policy: partial(execute, job) for job in jobs}
        cases["median error"] = errors
        if cell.peer:
            cases[PEER] = peer
        if cell.shape.name.startswith(_FLEXGEN_MODELS):
            why_not = _reason_against_flexgen()
            if why_not is None:
                cases |= {str(each): partial(flexgen, each) for each in SETTINGS}
            else:
                found.note(why_not)
        run_cases(cases, limit, found)


def _peer_row(cell: PlannedCell, model: ModelFolder) -> BenchRow:
    """The job by transformers, its weights in as much device memory, its cache in host memory;
    activations, and a layer's cache, lie beside that.

    Raises:
        CaseError: it cannot run here.
    """
    try:
        from benchmarks.gpu.peer import Offloading
    except ImportError as error:
        raise CaseError(str(error)) from error
    case = HostCase(min(cell.requests, _PEER_ROWS), cell.prompt_tokens, cell.new_tokens)
    prompts = case.prompts(0, model.spec.vocab_size)
    peer = Offloading(model.path, cell.memory_bytes, cache="offloaded")
    peer.generate(prompts[:1], 2)  # a first time
    begin = time.perf_counter()
    made = peer.generate(prompts, cell.new_tokens)
    seconds = time.perf_counter() - begin
    tokens = sum(map(len, made.token_ids))
    return BenchRow(_case(cell), PEER, "throughput", tokens / seconds, "tokens/s")


def _reason_against_flexgen() -> str | None:
    try:
        return NOT_THERE if find_flexgen() is None else None
    except CaseError as error:
        return f"FlexLLMGen was not run: {error}"


def _flexgen_row(
    cell: PlannedCell, model: ModelFolder, precision: Precision, setting: FlexGenSetting
) -> BenchRow:
    """The job by FlexLLMGen, in as much device memory.

    Raises:
        CaseError: it cannot run here.
    """
    sizes = cell.requests, cell.prompt_tokens, cell.new_tokens
    block = FlexGenBlock.of(model.spec, precision, cell.memory_bytes, *sizes)
    case = HostCase(block.batches * block.rows, cell.prompt_tokens, cell.new_tokens)
    prompts = case.prompts(0, model.spec.vocab_size)
    rate = flexgen_tokens_per_s(
        find_flexgen(), cell.shape.name, block, setting, prompts, cell.new_tokens
    )
    return BenchRow(_case(cell), str(setting), "throughput", rate, "tokens/s")


def _note_refused(cell: PlannedCell, policies: Sequence[str], found: Findings) -> None:
    if policies:
        found.note(f"{_case(cell)}: nothing fits by policy {', '.join(policies)}")


def _run_blocks(config: EngineConfig, file: PlanFile, workload: Workload) -> float:
    """Output tokens per second of the whole job."""
    with closing(build_block_core(config, file)) as core:
        for number, shape in enumerate(workload.requests):
            prompt = [_FIRST_TOKEN + (number + i) % _TOKENS for i in range(shape.prompt_tokens)]
            params = SamplingParams(
                max_tokens=shape.generated_tokens, temperature=0.0, ignore_eos=True
            )
            core.add_request(EngineRequest(str(number), tuple(prompt), params))
        begin, tokens = time.perf_counter(), 0
        while core.has_work():
            tokens += sum(len(output.token_ids) for output in core.step())
        return tokens / (time.perf_counter() - begin)


def _question(cell: PlannedCell, scale: Scale, model: ModelSpec, workload: Workload) -> Question:
    tokens = min(_BATCHED_TOKENS, 2 * max(each.prompt_tokens for each in workload.requests[:100]))
    question = ask(stored_profile(), model, workload, cell.host_bytes or scale.host_bytes, tokens)
    # where the host does the maths, activations are in float32 (ADR 0010)
    activations = DTYPE if scale.accelerator == "cuda" else DType.FLOAT32
    kind, _, group = cell.quantization.partition(":")
    formats = uniform_formats(model, _BITS[kind], int(group)) if kind in _BITS else {}
    precision = Precision(weights=DTYPE, activations=activations, kv=DTYPE, quantized=formats)
    return replace(question, device_bytes=cell.memory_bytes, precision=precision)


def _config(scale: Scale, model: Path, file: PlanFile, question: Question) -> EngineConfig:
    path = model / f"{time.monotonic_ns()}.json"
    path.write_text(file.to_json(), encoding="utf-8")
    options: dict[str, Any] = {
        "model": str(model),
        "plan": str(path),
        "accelerator": scale.accelerator,
        "gpu_memory": str(question.device_bytes),
        "cpu_memory": str(question.host_bytes),
        "load_format": "dummy",
        "enable_prefix_caching": False,
    }
    return engine_config(options)


def _emitted_per_s(loop: ClosedLoop, window_s: float) -> float:
    """From one step's tokens to another's, at least so long."""
    begin = end = time.perf_counter()
    tokens = 0
    while end - begin < window_s or not tokens:
        tokens += loop.step()[0]
        end = time.perf_counter()
    return tokens / (end - begin)


def _rows(
    case: str,
    policy: str,
    predicted: float,
    executed: Sequence[float],
    most: float | None = None,
) -> Sequence[BenchRow]:
    errors = [predicted / each for each in executed]
    return (
        row_of_samples(case, policy, "throughput", executed, "tokens/s", most),
        row_of_samples(case, policy, ratio_metric("predicted"), errors, "ratio", _EXACT),
    )


def _case(cell: PlannedCell) -> str:
    job = f"{cell.requests} requests, " if cell.requests else ""
    weights = DTYPE if cell.quantization == "none" else cell.quantization
    return (
        f"{cell.shape.name}, {weights}, {format_size(cell.memory_bytes)} of device memory; {job}"
        f"{cell.prompt_tokens} tokens in, {cell.new_tokens} out"
    )
