"""How many parts a job's prompts are cut into: as an engine does it, and at least."""

import math

import pytest

from tandem.plan.prompt_parts import PartLimits, PromptSize, prompt_parts
from tandem.planner.offline.prompt_sizes import PartSizes, PromptSizes
from tandem.planner.question import Lengths
from tandem.spec.workload import RequestShape, Workload

_ANY = 10_000


def sizes(tokens: list[int], most: int) -> PromptSizes:
    shapes = tuple(RequestShape(n, 8) for n in tokens)
    return PromptSizes(Lengths.of(Workload("test", shapes)), 64, most)


def total(parts: PartSizes) -> float:
    return sum(tokens * count for tokens, count in (*parts.parts, *parts.alone))


def number(parts: PartSizes) -> float:
    return sum(count for _, count in (*parts.parts, *parts.alone))


def test_parts_are_those_of_an_engine() -> None:
    tokens = [58 + n * 7 % 13 for n in range(300)]
    job = sizes(tokens, 256)
    engine = prompt_parts(
        [PromptSize(n, -(-n // 64)) for n in tokens], PartLimits(256, job.slot_blocks, 195)
    )
    assert number(job.packed(195)) == len(list(engine))
    assert total(job.packed(195)) == sum(tokens)
    # of 64 tokens in the mean four fill a part, of which 5.8 blocks are one more than 256 tokens'
    assert number(job.least(195)) == pytest.approx(sum(tokens) / 256, rel=0.01)
    assert 6 <= job.slot_blocks <= 7


def test_prompts_of_which_no_two_fit_are_alone() -> None:
    job = sizes([461, 512, 563, 512], 563)
    assert job.packed(50).parts == ((461, 1), (512, 2), (563, 1))
    assert job.least(50) == PartSizes(4, (), job.packed(50).parts)


def test_prompts_beside_which_no_other_fits_are_alone() -> None:
    job = sizes([100, 300, 420, 440, 600], 520)
    assert job.least(50) == PartSizes(5, ((410, 2.0),), ((440, 1.0), (600, 1.0)))
    assert sizes([200, 440], 400).least(50) == PartSizes(2, (), ((200, 1.0), (440, 1.0)))


@pytest.mark.parametrize("rows", [1, 2, 3, 50])
@pytest.mark.parametrize("most", [100, 180, 256, 700])
def test_no_order_makes_fewer_parts(rows: int, most: int) -> None:
    tokens = [30 + n * 37 % 171 for n in range(171)]
    for reverse in (False, True, None):
        given = tokens if reverse is None else sorted(tokens, reverse=reverse)
        job = sizes(given, most)
        packed, least = job.packed(rows), job.least(rows)
        assert least.prompts == packed.prompts == len(tokens)
        assert number(least) <= number(packed) + 1e-9
        assert number(least) >= len(tokens) / rows
        assert number(least) >= sum(min(n, most) for n in tokens) / most - 1e-9
        assert total(least) <= total(packed)


@pytest.mark.parametrize("tokens", [[40] * 3000 + [400] * 3000, [400] * 3000 + [40] * 3000])
def test_of_many_prompts_the_same_ones_are_looked_at(tokens: list[int]) -> None:
    job = sizes(tokens, 1024)
    packed, least = job.packed(50), job.least(50)
    assert packed.prompts == least.prompts <= 2048
    assert total(packed) / packed.prompts == pytest.approx(220, rel=0.01)
    assert number(least) <= number(packed)


def test_of_means_alone_parts_are_as_many_as_fit() -> None:
    means = Lengths(40, 100.0, 8.0, 104.0, 108, 0.0)
    job = PromptSizes(means, 64, 256)
    assert job.packed(10) == PartSizes(2, ((200, 1.0),))
    assert job.packed(1) == PartSizes(1, ((100, 1.0),))
    assert math.isclose(number(job.least(10)) / job.least(10).prompts, 0.5)
    assert job.slot_blocks == 1 + math.ceil(256 * 2 / 100)


def test_a_sequence_more_never_makes_a_part_dearer() -> None:
    """The bound's parts are fewer and larger where more may be in one."""
    job = sizes([20 + n % 9 for n in range(90)], 512)
    counts = [number(job.least(rows)) for rows in range(1, 40)]
    assert counts == sorted(counts, reverse=True)
    assert job.packed(_ANY) == job.packed(512 // 20)
