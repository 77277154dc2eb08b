"""What is said where nothing fits is what would do, and the least of it."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import alone, ask, with_disk

from tandem.planner.answer import answer
from tandem.planner.policies import find_policy
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.planner.shortfall import describe_shortfall, find_shortfall
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.quantized_maps import uniform_formats
from tandem.spec.units import GIB

AUTO = find_policy("auto")
TENTH = GIB // 10
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
    assert not fits(replace(LONG, device_bytes=found.device_bytes - TENTH - 1))
    assert fits(replace(LONG, host_bytes=found.host_bytes))
    assert not fits(replace(LONG, host_bytes=found.host_bytes - TENTH - 1))


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
        assert not fits(replace(question, **{memory: found.reading_bytes - TENTH - 1}))
        assert not fits(with_disk(enough, None))
        with pytest.raises(ConfigError, match=r"would do: --disk RATE .* with --cpu-memory \d"):
            answer(without)
        assert find_shortfall(question, AUTO).reading_bytes is None


def test_a_machine_that_is_too_small_is_said_to_be() -> None:
    question = with_disk(ask("llama-3.1-70b", "a10g", "g5.2xlarge"), None)
    with pytest.raises(ConfigError, match=r"--cpu-memory \d+\.\dGiB \(\d+\.\d GiB more, of a larg"):
        answer(question)
