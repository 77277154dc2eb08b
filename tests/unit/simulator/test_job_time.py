"""When a job ends whose requests are all there at once: as planned, and as the scheduler has it."""

import pytest
from tests.unit.planner.questions import short

from tandem.models.catalogue import plannable_spec
from tandem.planner.answer import answer
from tandem.planner.question import Lengths, Question
from tandem.simulator.build import Planned
from tandem.simulator.simulate import simulate
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware
from tandem.spec.precision import Precision
from tandem.spec.workload import Workload, drawn_workload, parse_lengths

LONG, PROMPTS, UNLIKE = ("1", "900-1100"), ("512", "460-560"), ("100-900", "10-1200")


def asked(pair: str, model: str, workload: Workload) -> Question:
    """Of eight of the model's layers."""
    hardware = load_hardware(pair)
    return Question(
        model=short(plannable_spec(model), 8),
        hardware=hardware,
        precision=Precision.uniform(DType.FLOAT16),
        lengths=Lengths.of(workload),
        device_bytes=round(0.95 * hardware.accelerator.memory_bytes),
        host_bytes=hardware.host.memory_bytes // 2,
        max_num_batched_tokens=512,
    )


@pytest.mark.parametrize(
    ("pair", "policy", "lengths", "requests"),
    [
        ("small", "gpu-only", LONG, 44),
        ("small", "gpu-only", LONG, 200),
        ("small", "gpu-only", PROMPTS, 30),
        ("small", "gpu-only", PROMPTS, 100),
        ("small", "gpu-only", UNLIKE, 60),
        ("small", "ride-along", LONG, 60),
        ("t4-scaled", "gpu-only", LONG, 20),
        ("t4-scaled", "gpu-only", ("512", "58-70"), 200),
        ("t4-scaled", "ride-along", ("100-500", "200-600"), 60),
    ],
)
def test_a_job_takes_as_long_as_is_predicted(
    pair: str, policy: str, lengths: tuple[str, str], requests: int
) -> None:
    model = "llama-3.1-8b" if pair == "small" else "llama-2-7b"
    prompt, generate = lengths
    workload = drawn_workload(
        parse_lengths(prompt, "prompt"), parse_lengths(generate, "generate"), requests
    )
    question = asked(pair, model, workload)
    found = answer(question, policy)
    made = simulate(Planned(question, found.chosen, found.plan), workload)
    # with places for more than the host's memory holds, fewer run at once than is lived through
    rel = 0.12 if (pair, policy) == ("t4-scaled", "ride-along") else 0.1
    assert found.job_s == pytest.approx(made.duration_s, rel=rel)
