"""Whichever experts the accelerator has: its share and the CPU's are the whole."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.kernels.open_pool import open_pool
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.host_layers import host_layers
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.models.weight_layout import Modules
from tandem.models.weights import allocate_weights
from tandem.plan.program import LaneShape
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sweep_template
from tandem.plan.validator import Placed, validate_sequence
from tandem.plan.weights import Home, StreamedLayers, as_runs
from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec, ModelSpec, RopeSpec
from tandem.spec.precision import Precision

CPU = torch.device("cpu")
COUNT, LAYERS = 6, 4
MIXTURE = ExpertSpec(COUNT, 2, 20)
SPEC = ModelSpec("mixtral", 64, 24, 1, 4, 2, 8, 40, 512, rope=RopeSpec(), experts=MIXTURE)
SUBSETS = st.sets(st.integers(0, COUNT - 1)).map(lambda chosen: tuple(sorted(chosen)))


def model(experts: tuple[int, ...] | None, *, compiled: bool) -> Model:
    """Of one layer whose experts are the CPU's but for these; None: it is whole."""
    hosted = SweepLayers(mlp_on_cpu=() if experts is None else (0,))
    apart = {0: experts} if experts else {}
    weights = allocate_weights(SPEC, torch.float32, CPU, hosted, experts=apart)
    fill_dummy_weights(weights, SPEC, 0, None)
    if experts is not None and len(experts) == COUNT:  # no placement leaves the CPU nothing
        return Model(SPEC, weights)
    pool = open_pool() if compiled else None
    return Model(SPEC, weights, host=host_layers(SPEC, weights, (), torch.float32, pool))


def state(tokens: int) -> LayerState:
    torch.manual_seed(tokens)
    attention = torch.randn(tokens, SPEC.num_heads, SPEC.head_dim)
    residual = torch.randn(tokens, SPEC.hidden_size)
    return LayerState(torch.arange(tokens), residual, attention=attention)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
@settings(max_examples=40, deadline=None)
@given(experts=SUBSETS, tokens=st.integers(1, 70))
def test_the_two_shares_are_the_whole(
    compiled: bool, experts: tuple[int, ...], tokens: int
) -> None:
    whole = model(None, compiled=False)
    expected = state(tokens)
    whole.run(whole.stages(0).post, 0, expected)

    split, found = model(experts, compiled=compiled), state(tokens)
    if not experts:
        assert split.host is not None
        split.run(split.output_stage(0), 0, found)
        split.host.mlp(0, found)
        torch.testing.assert_close(found.residual, expected.residual, rtol=1e-5, atol=1e-5)
        assert split.expert_hits.by_layer() == whole.expert_hits.by_layer()
        return
    split.run(split.route_stage(0), 0, found)
    on_host = LayerState(
        found.positions,
        found.residual.clone(),
        experts=found.experts,
        expert_weights=found.expert_weights,
    )
    own = split.expert_sum(0, found)
    if split.host is not None:
        split.host.mlp(0, on_host)
        assert on_host.experts is None
    torch.testing.assert_close(on_host.residual + own, expected.residual, rtol=1e-5, atol=1e-5)
    assert split.expert_hits.by_layer() == whole.expert_hits.by_layer()


@settings(max_examples=60, deadline=None)
@given(experts=SUBSETS)
def test_every_weight_is_in_one_place(experts: tuple[int, ...]) -> None:
    hosted = SweepLayers(mlp_on_cpu=(0,))
    weights = allocate_weights(SPEC, torch.float32, CPU, hosted, experts={0: experts})
    whole = allocate_weights(SPEC, torch.float32, CPU)
    names = sorted(parameter.name for parameter in weights.parameters())
    assert names == sorted(parameter.name for parameter in whole.parameters())
    assert weights.size_bytes == whole.size_bytes
    expert = 3 * SPEC.hidden_size * MIXTURE.intermediate_size * 4
    router = 0 if experts else COUNT * SPEC.hidden_size * 4
    assert weights.host_bytes == (COUNT - len(experts)) * expert + router
    assert _experts(weights.here(0)) == _experts(weights.staying(0)) == _named(experts)


@settings(max_examples=60, deadline=None)
@given(experts=st.lists(SUBSETS, min_size=3, max_size=3))
def test_every_weight_that_comes_has_a_place_to_come_to(experts: list[tuple[int, ...]]) -> None:
    """Slots are as large as most of what comes, and nothing that stays is in one."""
    spec = replace(SPEC, num_layers=3)
    circle = StreamedLayers((0, 1, 2), mlps=(0, 1, 2))
    held = {layer: ids for layer, ids in enumerate(experts) if ids and len(ids) < COUNT}
    weights = allocate_weights(spec, torch.float32, CPU, SweepLayers(circle), experts=held)
    whole = allocate_weights(spec, torch.float32, CPU)
    assert weights.size_bytes == whole.size_bytes
    expert = 3 * SPEC.hidden_size * MIXTURE.intermediate_size * 4
    router = COUNT * SPEC.hidden_size * 4
    coming = [
        COUNT * expert + router if n not in held else (COUNT - len(held[n])) * expert
        for n in range(3)
    ]
    assert weights.host_bytes == sum(coming)
    assert weights.resident_bytes == whole.size_bytes - sum(coming) + 2 * max(coming)
    sizes = WeightSizes.of(spec, Precision.uniform(DType.FLOAT32))
    homes: list[Home] = ["host-mlp"] * 3
    runs = as_runs(homes, held)
    assert sizes.slots_bytes(runs) == 2 * max(coming)
    assert sizes.host_bytes(runs) == sum(coming)
    assert sizes.device_bytes(runs) == weights.resident_bytes
    for layer in range(3):
        assert _experts(weights.staying(layer)) == _named(held.get(layer, ()))
        assert _experts(weights.here(layer)) == _named(tuple(range(COUNT)))


def _experts(modules: Modules) -> set[str]:
    return {name for name in modules if name.startswith("experts.")}


def _named(experts: tuple[int, ...]) -> set[str]:
    return {f"experts.{i}.{part}" for i in experts for part in ("gate_up", "gate", "up", "down")}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
@settings(max_examples=30, deadline=None)
@given(experts=st.lists(SUBSETS, min_size=3, max_size=3), tokens=st.integers(1, 40))
def test_experts_that_come_and_go_make_no_difference(
    compiled: bool, experts: list[tuple[int, ...]], tokens: int
) -> None:
    """Whatever lies in the slots meanwhile: whole where they have come, or in two shares."""
    spec = replace(SPEC, num_layers=3)
    plain = allocate_weights(spec, torch.float32, CPU)
    fill_dummy_weights(plain, spec, 0, None)
    circle = StreamedLayers((0, 1, 2), mlps=(0, 1, 2))
    held = {layer: ids for layer, ids in enumerate(experts) if ids and len(ids) < COUNT}
    weights = allocate_weights(spec, torch.float32, CPU, SweepLayers(circle), experts=held)
    fill_dummy_weights(weights, spec, 0, None)
    weights.prepare()
    pool = open_pool() if compiled else None
    host = host_layers(spec, weights, (), torch.float32, pool, (0, 1, 2))
    assert host is not None
    assert weights.stream is not None
    moving, whole = Model(spec, weights, host=host), Model(spec, plain)
    for layer in (0, 1, 2, 0):
        expected = state(tokens)
        whole.run(whole.stages(layer).post, layer, expected)
        if layer in held:  # by both, before its turn in the slots
            routed = state(tokens)
            moving.run(moving.route_stage(layer), layer, routed)
            own = moving.expert_sum(layer, routed)
            routed.x = None
            host.mlp(layer, routed)
            torch.testing.assert_close(routed.residual + own, expected.residual)
        weights.stream.load(layer)
        found = state(tokens)
        moving.run(moving.stages(layer).post, layer, found)
        torch.testing.assert_close(found.residual, expected.residual)


LANES = st.builds(
    LaneShape, device=st.booleans(), host=st.just(True), suspends=st.just(False), head=st.booleans()
)
KINDS = st.sampled_from(["resident", "cpu", "mlp", "split", "lent", "coming"])


@settings(max_examples=100, deadline=None)
@given(
    kinds=st.lists(KINDS, min_size=LAYERS, max_size=LAYERS),
    lanes=st.lists(LANES, min_size=1, max_size=2),
)
def test_sweeps_with_split_mixtures_follow_each_other(
    kinds: list[str], lanes: list[LaneShape]
) -> None:
    def layers(*wanted: str) -> tuple[int, ...]:
        return tuple(layer for layer, kind in enumerate(kinds) if kind in wanted)

    circle = layers("lent", "coming")
    held = StreamedLayers(circle, mlps=circle)
    lent = tuple(layer for layer in circle[2:] if kinds[layer] == "lent")
    on_cpu, split = layers("cpu"), tuple(sorted({*layers("split"), *lent}))
    small = SweepLayers(held, on_cpu, tuple(sorted({*layers("mlp"), *split})), split)
    large = SweepLayers(held, on_cpu, layers("mlp", "split"), layers("split"))
    sweeps = [small, large] * len(lanes)
    placed = [
        Placed(sweep_template(LAYERS, (lane,), each), (0,))
        for lane, each in zip(lanes, sweeps, strict=False)
    ]
    sweep = large
    reached = [layer for layer, kind in enumerate(kinds) if kind != "cpu"]
    if reached:  # a cohort leaves and comes back at such a layer
        start = LaneShape(suspends=True, host=True)
        join = LaneShape(cursor=reached[0], suspends=len(reached) > 1, host=True, guarded=True)
        placed.append(Placed(sweep_template(LAYERS, (lanes[0], start), sweep), (0, 7)))
        placed.append(Placed(sweep_template(LAYERS, (lanes[0], join), sweep), (0, 7)))
    validate_sequence(placed)
