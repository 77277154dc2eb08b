"""Which layers the CPU computes: by the ratio of link and memory, and by the size of a step."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.test_paced_streaming import SMALL, WIDE
from tests.support.setups import going_together

from tandem.cost.expert_use import ExpertUse
from tandem.engine.sizing.cpu_rules import choose_cpu_rules
from tandem.models.catalogue import plannable_spec
from tandem.plan.sweep_layers import CpuRule, SweepChoice
from tandem.plan.weights import HOSTED, LENT, MLPS_APART, Home, as_runs
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
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


def test_of_a_mixture_the_experts_that_are_left_are_the_cpu_s_in_small_steps_only() -> None:
    spec = replace(plannable_spec("qwen3-30b-a3b"), num_layers=8)
    homes: list[Home] = ["host-mlp"] * 8
    experts = {layer: tuple(range(layer, layer + 40)) for layer in range(8) if layer != 5}
    placement = as_runs(homes, experts)
    precision, card = Precision.uniform(DType.BFLOAT16), load_hardware("rtx4090")
    found = choose_cpu_rules(placement, spec, precision, 4096, card)
    assert found[0].layers == tuple(range(2, 8))
    assert found[-1].max_tokens < 4096
    choice = SweepChoice.of_plan(placement, found)
    assert choice.of(1).split_mlps == (2, 3, 4, 6, 7)
    assert choice.of(1).mlp_on_cpu == tuple(range(2, 8))
    assert choice.usual.split_mlps == ()
    assert choice.usual.loaded == tuple(range(8))
    assert choice.experts == experts
    hot = [[1000 if e in experts.get(n, ()) else 1 for e in range(128)] for n in range(8)]
    seldom = choose_cpu_rules(
        placement, spec, precision, 4096, card, ExpertUse.of_counts(hot, spec)
    )
    # what is left is hardly used, so that the CPU keeps it in larger steps, too
    assert _most(seldom, 7) > _most(found, 7)


def _most(rules: tuple[CpuRule, ...], layer: int) -> int:
    """Tokens of the largest step that leaves a layer to the CPU."""
    return max((rule.max_tokens for rule in rules if layer in rule.layers), default=0)


def test_a_host_that_hardly_computes_streams_always() -> None:
    for home in LENT:
        assert rules([home] * 8, hardware(link=10e9, memory=60e9, flops=1e9)) == ()


def test_mlps_are_the_cpu_s_in_small_steps_but_for_those_in_slots_and_come_in_large_ones() -> None:
    pair = hardware(link=10e9, memory=60e9)
    homes: list[Home] = ["host-mlp"] * 9
    homes[0] = "cpu-mlp"
    found = rules(homes, pair)
    assert found[0] == CpuRule(found[0].max_tokens, tuple(range(3, 9)))
    assert found[-1].max_tokens < 2048
    choice = SweepChoice.of_plan(as_runs(homes), found)
    assert choice.of(1).mlp_on_cpu == (0, *range(3, 9))
    assert choice.of(1).on_cpu == choice.usual.on_cpu == ()
    assert choice.of(1).loaded == (1, 2)
    assert choice.of(2048).loaded == choice.usual.loaded == tuple(range(1, 9))
    assert choice.mlps_ever_on_cpu == (0, *range(3, 9))
    assert choice.cpu_mlp_tokens is None  # that of layer 0 always is


def test_sweeps_with_cohorts_may_leave_mlps_to_the_cpu_but_not_whole_layers() -> None:
    rule = CpuRule(8, (2, 3))
    apart: list[Home] = ["host-mlp"] * 4
    mlps = SweepChoice.of_plan(as_runs(apart), (rule,))
    assert mlps.with_cohorts(8) == mlps.of(8) != mlps.usual
    mixed: list[Home] = ["host-mlp", "host-mlp", "host", "host-mlp"]
    whole = SweepChoice.of_plan(as_runs(mixed), (rule,))
    assert whole.with_cohorts(8) == whole.usual != whole.of(8)
    assert (whole.cpu_tokens, whole.cpu_mlp_tokens) == (8, 8)


def test_where_nothing_is_left_to_choose_there_are_no_rules() -> None:
    fixed: list[Home] = ["cpu", "streamed", "resident", "streamed"]
    assert rules(fixed, hardware(link=1e9, memory=60e9)) == ()


@settings(max_examples=40, deadline=None)
@given(
    homes=st.lists(
        st.sampled_from(("resident", "disk_streamed", "disk-cpu", *HOSTED, *MLPS_APART)),
        min_size=1,
        max_size=12,
    ).map(lambda homes: [home for _, home in going_together(homes, ())[0]]),
    link=st.floats(1e9, 60e9),
    memory=st.floats(5e9, 200e9),
    max_tokens=st.integers(1, 3000),
)
def test_whatever_is_chosen_can_be_done(
    homes: list[Home], link: float, memory: float, max_tokens: int
) -> None:
    found = rules(homes, hardware(link, memory), max_tokens)
    choice = SweepChoice.of_plan(as_runs(homes), found)  # refuses what does not
    free = {layer for layer, home in enumerate(homes) if home in LENT}
    assert all(set(rule.layers) <= free for rule in found)
    assert [rule.max_tokens for rule in found] == sorted({rule.max_tokens for rule in found})
    assert choice.of(3001) == choice.usual or max_tokens > 3000
