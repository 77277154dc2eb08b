"""Whichever experts the accelerator has: its share and the CPU's are the whole."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.kernels.open_pool import open_pool
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.host_layers import host_layers
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.models.weights import allocate_weights
from tandem.plan.program import LaneShape
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sweep_template
from tandem.plan.validator import Placed, validate_sequence
from tandem.spec.model import ExpertSpec, ModelSpec, RopeSpec

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
    here = {name for name in weights.here(0) if name.startswith("experts.")}
    parts = ("gate_up", "gate", "up", "down")
    assert here == {f"experts.{i}.{part}" for i in experts for part in parts}


LANES = st.builds(
    LaneShape, device=st.booleans(), host=st.just(True), suspends=st.just(False), head=st.booleans()
)
KINDS = st.sampled_from(["resident", "cpu", "mlp", "split"])


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

    sweep = SweepLayers(
        on_cpu=layers("cpu"), mlp_on_cpu=layers("mlp", "split"), split_mlps=layers("split")
    )
    placed = [Placed(sweep_template(LAYERS, (lane,), sweep), (0,)) for lane in lanes]
    reached = [layer for layer, kind in enumerate(kinds) if kind != "cpu"]
    if reached:  # a cohort leaves and comes back at such a layer
        start = LaneShape(suspends=True, host=True)
        join = LaneShape(cursor=reached[0], suspends=len(reached) > 1, host=True, guarded=True)
        placed.append(Placed(sweep_template(LAYERS, (lanes[0], start), sweep), (0, 7)))
        placed.append(Placed(sweep_template(LAYERS, (lanes[0], join), sweep), (0, 7)))
    validate_sequence(placed)
