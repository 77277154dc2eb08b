"""Questions that tests ask the planner."""

from dataclasses import replace
from typing import Any

from tandem.models.catalogue import plannable_spec
from tandem.planner.host_alone import host_alone
from tandem.planner.question import Lengths, Question
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.units import MIB
from tandem.spec.workload import Workload, arriving, drawn_workload, parse_lengths


def short(model: ModelSpec, layers: int) -> ModelSpec:
    """The same model with fewer layers."""
    return replace(model, num_layers=layers, windows=model.windows[:layers])


def with_dense(model: ModelSpec, *layers: int) -> ModelSpec:
    """The same model with experts in the other layers only."""
    assert model.experts is not None
    return replace(model, experts=replace(model.experts, dense_layers=layers))


def ask(
    model: str | ModelSpec = "llama-3.1-8b",
    accelerator: str = "a10g",
    host: str | None = None,
    *,
    prompt: str = "512",
    generate: str = "128",
    requests: int = 200,
    **changes: Any,
) -> Question:
    spec = plannable_spec(model) if isinstance(model, str) else model
    hardware = pair_hardware(accelerator, host)
    workload = drawn_workload(
        parse_lengths(prompt, "prompt"), parse_lengths(generate, "generate"), requests
    )
    question = Question(
        model=spec,
        hardware=hardware,
        precision=Precision.uniform(DType.FLOAT16),
        lengths=Lengths.of(workload),
        device_bytes=hardware.accelerator.memory_bytes - 256 * MIB,
        host_bytes=hardware.host.memory_bytes // 2,
    )
    return replace(question, **changes)


def over_time(question: Question, requests_per_s: float) -> Question:
    """The same requests, coming as a Poisson process."""
    workload = arriving(Workload("requests", question.lengths.shapes), requests_per_s, seed=0)
    return replace(question, lengths=Lengths.of(workload))


def with_disk(question: Question, bytes_per_s: float | None) -> Question:
    """The same with a disk of that rate, or with none."""
    host = replace(question.hardware.host, disk_bytes_per_s=bytes_per_s)
    return replace(question, hardware=replace(question.hardware, host=host))


def alone(
    model: str | ModelSpec = "llama-3.1-8b",
    host: str = "desktop-ddr5",
    *,
    host_bytes: int,
    **changes: Any,
) -> Question:
    """On the host alone, which may use so much memory."""
    question = ask(model, "a10g", host, **changes)
    precision = replace(question.precision, activations=DType.FLOAT32)
    return replace(
        question,
        hardware=host_alone(host, question.hardware.host),
        precision=precision,
        device_bytes=host_bytes,
        host_bytes=0,
        host_only=True,
    )


SMALL = short(plannable_spec("llama-3.1-8b"), 8)
"""Eight layers of an 8B model."""
