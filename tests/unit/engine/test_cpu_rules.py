"""Which layers the CPU computes: by the ratio of link and memory, and by the size of a step."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.test_paced_streaming import SMALL, WIDE

from tandem.engine.cpu_rules import choose_cpu_rules
from tandem.plan.sweep_layers import CpuRule, SweepChoice
from tandem.plan.weights import HOSTED, SLOTTED, Home, as_runs
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.precision import Precision


def hardware(link: float, memory: float, flops: float = 1e12) -> HardwareSpec:
    return replace(
        SMALL,
        link=replace(SMALL.link, h2d_bytes_per_s=link),
        host=replace(SMALL.host, memory_bandwidth_bytes_per_s=memory, flops_per_s=flops),
    )


def rules(homes: list[Home], pair: HardwareSpec, max_tokens: int = 2048) -> tuple[CpuRule, ...]:
    spec = replace(WIDE, num_layers=len(homes))
    return choose_cpu_rules(
        as_runs(homes), spec, Precision.uniform(DType.BFLOAT16), max_tokens, pair
    )


def test_small_steps_stay_where_memory_is_faster_than_the_link_and_large_ones_stream() -> None:
    found = rules(["host"] * 8, hardware(link=10e9, memory=60e9))
    assert found[0].layers
    assert found[-1].max_tokens < 2048
    sizes = [len(rule.layers) for rule in found]
    assert sizes == sorted(sizes, reverse=True)


def test_a_host_that_hardly_computes_streams_always() -> None:
    assert rules(["host"] * 8, hardware(link=10e9, memory=60e9, flops=1e9)) == ()


def test_where_nothing_is_left_to_choose_there_are_no_rules() -> None:
    fixed: list[Home] = ["cpu", "streamed", "resident", "streamed"]
    assert rules(fixed, hardware(link=1e9, memory=60e9)) == ()


@settings(max_examples=40, deadline=None)
@given(
    homes=st.lists(
        st.sampled_from(("resident", "disk_streamed", *HOSTED)), min_size=1, max_size=12
    ),
    link=st.floats(1e9, 60e9),
    memory=st.floats(5e9, 200e9),
    max_tokens=st.integers(1, 3000),
)
def test_whatever_is_chosen_goes_round(
    homes: list[Home], link: float, memory: float, max_tokens: int
) -> None:
    if sum(home in SLOTTED for home in homes) % 2:
        homes.append("streamed")
    found = rules(homes, hardware(link, memory), max_tokens)
    choice = SweepChoice.of_plan(as_runs(homes), found)  # refuses what does not
    free = {layer for layer, home in enumerate(homes) if home == "host"}
    assert all(set(rule.layers) <= free for rule in found)
    assert [rule.max_tokens for rule in found] == sorted({rule.max_tokens for rule in found})
    assert choice.of(3001) == choice.usual or max_tokens > 3000
