"""What is said where nothing fits is what would do, and the least of it."""

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled
from tests.unit.planner.questions import SMALL, alone, ask, short, with_disk

from tandem.models.catalogue import plannable_spec
from tandem.planner.answer import answer
from tandem.planner.footprint import Footprint
from tandem.planner.policies import find_policy
from tandem.planner.question import Question
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.search import Search
from tandem.planner.shortfall import describe_shortfall, find_shortfall
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.quantized_maps import uniform_formats
from tandem.spec.units import GIB, MIB, parse_duration_s, parse_size_with_unit

AUTO = find_policy("auto")
LONG = with_disk(ask(prompt="119000", device_bytes=4 * GIB, host_bytes=17 * GIB), None)
DISK = "--disk RATE (of the disk to read layers from)"


def fits(question: Question) -> bool:
    return Search(question).best(AUTO) is not None


def test_each_size_is_enough_and_a_little_less_is_not() -> None:
    assert not fits(LONG)
    found = find_shortfall(LONG, AUTO)
    assert found.device_bytes is not None
    assert found.host_bytes is not None
    assert fits(replace(LONG, device_bytes=found.device_bytes))
    assert not fits(replace(LONG, device_bytes=found.device_bytes - MIB))
    assert fits(replace(LONG, host_bytes=found.host_bytes))
    assert not fits(replace(LONG, host_bytes=found.host_bytes - MIB))


def test_a_shorter_request_and_smaller_kv_are_named_if_they_do() -> None:
    found = find_shortfall(LONG, AUTO)
    assert found.longest_tokens is not None
    prompt = found.longest_tokens - 128

    def with_prompt(tokens: int) -> Question:
        lengths = ask(prompt=str(tokens)).lengths
        return replace(LONG, lengths=lengths)

    assert fits(with_prompt(prompt))
    assert not fits(with_prompt(prompt + 200))
    # a quarter of the KV fits, half does not
    assert found.settings == (DISK, "--kv-cache-dtype int4", "--quantization int4")
    assert fits(with_disk(LONG, 1e8))
    for kind, enough in ((CodeType.INT8, False), (CodeType.INT4, True)):
        assert fits(replace(LONG, precision=replace(LONG.precision, kv=kind))) == enough
    assert "--kv-cache-dtype int4, --quantization int4, --gpu-memory" in describe_shortfall(
        LONG, found
    )
    for bits, enough in ((8, False), (4, True)):
        formats = uniform_formats(LONG.model, bits, None)
        assert fits(replace(LONG, precision=replace(LONG.precision, quantized=formats))) == enough


def test_no_host_helps_where_the_accelerator_is_too_small_for_one_layer() -> None:
    question = ask(device_bytes=GIB)
    found = find_shortfall(question, AUTO)
    assert (found.host_bytes, found.longest_tokens) == (None, None)
    with pytest.raises(ConfigError, match=r"does not fit.*any of these would do: --gpu-memory"):
        answer(question)


def test_beside_a_disk_less_host_memory_is_enough() -> None:
    for question, memory in (
        (ask("llama-3.1-70b", "a10g", "desktop-ddr5", host_bytes=2 * GIB), "host_bytes"),
        (alone("llama-3.1-70b", host_bytes=2 * GIB), "device_bytes"),
    ):
        without = with_disk(question, None)
        found = find_shortfall(without, AUTO)
        assert DISK not in found.settings
        assert found.reading_bytes is not None
        enough = replace(question, **{memory: found.reading_bytes})
        assert fits(enough)
        assert not fits(replace(question, **{memory: found.reading_bytes - MIB}))
        assert not fits(with_disk(enough, None))
        with pytest.raises(ConfigError, match=r"would do: --disk RATE .* with --cpu-memory \d"):
            answer(without)
        assert find_shortfall(question, AUTO).reading_bytes is None


def test_a_machine_that_is_too_small_is_said_to_be() -> None:
    question = with_disk(ask("llama-3.1-70b", "a10g", "g5.2xlarge"), None)
    with pytest.raises(ConfigError, match=r"--cpu-memory \d+MiB \(\d+\.\d GiB more, of a larg"):
        answer(question)


SIZES = {"--gpu-memory": "device_bytes", "--cpu-memory": "host_bytes"}
NAMED = re.compile(r"(--[a-z-]+-memory) (\d+MiB) \(")
MODELS = [SMALL, short(plannable_spec("qwen3-30b-a3b"), 6), short(plannable_spec("opt-30b"), 8)]


@st.composite
def too_small(draw: st.DrawFn) -> Question:
    """A machine on which nothing fits, or just something does."""
    mib = st.integers(200, 6000)
    question = ask(
        draw(st.sampled_from(MODELS)),
        draw(st.sampled_from(["t4", "a10g"])),
        prompt=draw(st.sampled_from(["100", "30000-100000"])),
        requests=draw(st.sampled_from([1, 20])),
        device_bytes=draw(mib) * MIB + draw(st.integers(0, MIB)),
        host_bytes=draw(mib) * MIB + draw(st.integers(0, MIB)),
        max_num_batched_tokens=draw(st.sampled_from([128, 2048, 8192])),
    )
    return with_disk(question, draw(st.sampled_from([None, 2e9])))


def anything_fits(question: Question) -> bool:
    return next(Candidates(question, Footprint(question)).of(AUTO), None) is not None


@settings(max_examples=scaled(15))
@given(too_small())
def test_named_values_do_as_they_are_written_and_less_does_not(question: Question) -> None:
    assume(not anything_fits(question))
    found = find_shortfall(question, AUTO)
    text = describe_shortfall(question, found)
    named = NAMED.findall(text.rpartition(f"{DISK} with ")[2])
    checks = [(question, flag, value) for flag, value in named]
    if found.reading_bytes is not None:
        checks[0] = (with_disk(question, 1e9), *named[0])
    for asked, flag, value in checks:
        size = parse_size_with_unit(value)
        assert fits(replace(asked, **{SIZES[flag]: size})), text
        assert not anything_fits(replace(asked, **{SIZES[flag]: size - MIB})), text
    for setting in found.settings:
        flag, _, value = setting.partition(" ")
        if flag == "--max-num-batched-tokens":
            assert fits(replace(question, max_num_batched_tokens=int(value)))
            twice = replace(question, max_num_batched_tokens=2 * int(value))
            assert not anything_fits(twice)


def test_more_memory_on_the_accelerator_takes_no_plan_away() -> None:
    """The weights had room there, but no request beside them, and the host held one layer, but none
    of those that would go through the accelerator's slots."""
    question = ask(
        MODELS[2],
        "t4",
        prompt="100",
        requests=1,
        host_bytes=1475 * MIB,
        max_num_batched_tokens=8192,
    )
    for size in range(11300, 11700, 40):
        assert anything_fits(replace(question, device_bytes=size * MIB)), size


BOUNDED = re.compile(r"--tpot-bound (\S+) would do(?:, or (\S+) with --objective latency)?")


@pytest.mark.parametrize(
    "question",
    [
        ask(SMALL, tpot_bound_s=1e-3),
        ask(SMALL, device_bytes=2 * GIB, tpot_bound_s=0.01, step_sizes=(128, 512)),
        ask(SMALL, "t4", objective="latency", tpot_bound_s=1e-3),
        ask(MODELS[1], "t4", device_bytes=2 * GIB, tpot_bound_s=0.01),
    ],
    ids=["resident", "streamed", "alone", "experts"],
)
def test_a_bound_that_is_named_can_be_kept(question: Question) -> None:
    with pytest.raises(ConfigError, match="nothing keeps") as refused:
        answer(question)
    named = BOUNDED.search(refused.value.message)
    assert named is not None
    bounds = [parse_duration_s(text) for text in named.groups() if text is not None]
    kept = replace(question, tpot_bound_s=bounds[0])
    alone_in_time = replace(question, tpot_bound_s=bounds[-1], objective="latency")
    for allowed in (kept, alone_in_time):
        best = Search(allowed).best(AUTO)
        assert best is not None
        assert allowed.allows(best.prediction.rates.worst_tpot_s)
    if len(bounds) > 1:
        assert bounds[1] <= bounds[0]
        assert not fits(replace(question, tpot_bound_s=0.97 * bounds[1]))
