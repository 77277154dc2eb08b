"""Whatever lies where, and whoever computes it in a step: tokens are those of a resident model."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engines import model_engine, tiny_model
from tests.support.script import run_all
from tests.support.setups import Setup, going_together, sweep_choice

from tandem.plan.program import LaneShape
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.templates import sweep_template
from tandem.plan.validator import Placed, validate_sequence
from tandem.plan.weights import LENT, ON_CPU, SLOTTED, Home
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

LAYERS = 5
BESIDE: tuple[Home, ...] = (
    "resident", "streamed", "cpu", "host", "cpu-mlp", "host-mlp", "host-mlp",
)  # fmt: skip
FROM_DISK: tuple[Home, ...] = ("disk_streamed", "disk-cpu")
TIERS = ((True, False), (False, True), (True, True))
MAIN = st.sampled_from(
    [LaneShape(device=d, host=h, head=end) for d, h in TIERS for end in (True, False)]
)
Homes = tuple[tuple[int, Home], ...]


@st.composite
def placements(draw: st.DrawFn) -> tuple[Homes, tuple[CpuRule, ...]]:
    """Homes of all layers, and up to three rules that fit them."""
    some = st.sampled_from((*BESIDE, *FROM_DISK, *FROM_DISK))
    homes: list[Home] = [draw(some) for _ in range(LAYERS)]
    circle = [layer for layer, home in enumerate(homes) if home in SLOTTED]
    free = [layer for layer in circle[2:] if homes[layer] in LENT]
    rules: list[CpuRule] = []
    for tokens in sorted(draw(st.sets(st.sampled_from([1, 2, 3, 9, 40]), max_size=3))):
        chosen = [layer for layer in free if draw(st.booleans())]
        every = draw(st.booleans()) and all(homes[layer] in LENT for layer in circle)
        rules.append(CpuRule(tokens, tuple(circle if every else chosen)))
    return going_together(homes, tuple(rules))


def tokens(setup: Setup) -> dict[str, list[int]]:
    greedy = SamplingParams(max_tokens=9, temperature=0.0, ignore_eos=True)
    prompts = [tuple((7 * i + 3 * j) % 60 + 2 for j in range(3 + 11 * i)) for i in range(4)]
    with model_engine(tiny_model(LAYERS, layers=setup.layers), setup) as engine:
        results = run_all(
            engine.core, [EngineRequest(str(i), p, greedy) for i, p in enumerate(prompts)]
        )
        engine.check_idle()
    return {request_id: result.token_ids for request_id, result in results.items()}


@cache
def expected() -> dict[str, list[int]]:
    return tokens(Setup())


@settings(max_examples=25, deadline=None)
@given(
    placement=placements(),
    strategy=st.sampled_from(["gpu-only", "ride-along", "rendezvous"]),
    seed=st.integers(0, 1000),
    device_blocks=st.sampled_from([9, 32]),
    executor=st.sampled_from(["exact", "exact", "threaded", "inline"]),
)
def test_tokens_do_not_depend_on_the_placement(
    placement: tuple[Homes, tuple[CpuRule, ...]],
    strategy: str,
    seed: int,
    device_blocks: int,
    executor: str,
) -> None:
    homes, rules = placement
    if strategy == "rendezvous" and all(home in ON_CPU for _, home in homes):
        strategy = "ride-along"
    setup = Setup(
        strategy=strategy,
        kv_placement="auto" if strategy == "gpu-only" else "split",
        device_blocks=device_blocks,
        host_blocks=0 if strategy == "gpu-only" else 32,
        max_num_batched_tokens=24,
        executor=executor,  # pyright: ignore[reportArgumentType]
        executor_seed=seed,
        homes=homes,
        cpu_rules=rules,
    )
    assert tokens(setup) == expected()


@settings(max_examples=150, deadline=None)
@given(placement=placements(), lanes=st.lists(MAIN, min_size=1, max_size=4), data=st.data())
def test_sweeps_of_any_size_follow_each_other(
    placement: tuple[Homes, tuple[CpuRule, ...]], lanes: list[LaneShape], data: st.DataObject
) -> None:
    choice = sweep_choice(*placement)
    sizes = [data.draw(st.integers(1, 50)) for _ in lanes]
    validate_sequence(
        [
            Placed(sweep_template(LAYERS, (lane,), choice.of(size)), (0,))
            for lane, size in zip(lanes, sizes, strict=True)
        ]
    )
