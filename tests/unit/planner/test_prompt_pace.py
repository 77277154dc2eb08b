"""Requests that read their prompts, or wait for those of others, take places that would decode."""

import random
from itertools import pairwise

import pytest

from tandem.bench.online.cell import Load, make_cell
from tandem.bench.online.plans import plan_policies
from tandem.bench.online.simulated import steady_tokens_per_s
from tandem.planner.prompt_pace import finished_per_sweep
from tandem.planner.question import Lengths, Question
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.dtype import DType
from tandem.spec.precision import Precision

PLACES = [(1, 63, 8.7), (5, 63, 4.2), (5, 63, 8.7), (8, 99, 16.5), (16, 63, 4.5), (27, 63, 2.2)]
LOADS = (0.5, 0.8, 1.0, 1.2, 1.4, 1.6, 2.0, 2.5)


def served(places: int, decoding: float, reading: float) -> float:
    """Ends per sweep of a queue that is lived through, times up to a tenth off."""
    draws, ends = random.Random(0), [0.0] * places
    free_s, ended = 0.0, 4000
    for _ in range(ended):
        ends.sort()
        begin = max(free_s, ends[0])
        free_s = begin + reading * draws.uniform(0.9, 1.1)
        ends[0] = free_s + decoding * draws.uniform(0.9, 1.1)
    return ended / free_s


@pytest.mark.parametrize(("places", "decoding", "reading"), PLACES)
def test_as_many_end_as_in_a_queue(places: int, decoding: float, reading: float) -> None:
    found = finished_per_sweep(places, decoding, reading)
    assert found == pytest.approx(served(places, decoding, reading), rel=0.05)


@pytest.mark.parametrize("places", [2, 3, 4, 5, 6, 8, 12, 20])
def test_between_what_was_fitted_few_places_are_predicted_low(places: int) -> None:
    """By loads: reading times places over decoding."""
    for load in LOADS:
        reading = load * 63 / places
        off = finished_per_sweep(places, 63, reading) / served(places, 63, reading) - 1
        assert -(0.03 if places >= 8 else 0.09) < off < 0.02


def test_more_places_never_end_fewer_and_none_exceed_what_is_read() -> None:
    for decoding, reading in ((63, 8.7), (500, 0.3), (1, 0.01), (0.5, 3.0)):
        rates = [finished_per_sweep(places, decoding, reading) for places in range(1, 400)]
        assert rates[0] == pytest.approx(1 / (decoding + reading))
        assert all(few <= many for few, many in pairwise(rates))
        bounds = (min(n / (decoding + reading), 1 / reading) for n in range(1, 400))
        assert all(rate <= bound * (1 + 1e-9) for rate, bound in zip(rates, bounds, strict=True))


@pytest.mark.parametrize("policy", ["gpu-only", "gpu-only/512", "ride-along"])
def test_few_requests_with_long_prompts_make_what_is_predicted(policy: str) -> None:
    """Five places whose requests read for a fifth of their time were taken to decode all of it."""
    cell = make_cell("t4-scaled", "llama-2-7b", 8, Load(512, 64), Perturbation())
    card = cell.hardware.accelerator.memory_bytes
    question = Question(
        model=cell.model,
        hardware=cell.hardware,
        precision=Precision.uniform(DType.FLOAT16),
        lengths=Lengths.of(cell.load.workload(5000)),
        device_bytes=round(0.95 * card),
        host_bytes=cell.hardware.host.memory_bytes // 2,
        max_num_batched_tokens=cell.max_num_batched_tokens,
        step_sizes=cell.step_sizes,
    )
    planned = plan_policies(question, [policy])[0]
    assert planned.option is not None
    made = steady_tokens_per_s(planned, cell.load, window_s=20.0)
    assert planned.option.prediction.rates.tokens_per_s == pytest.approx(made, rel=0.06)
