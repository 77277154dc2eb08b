"""Faults of NEO's published code, each by name: none of them may be here.

The list with its sources is in `docs/papers/neo.md`, which names these tests. The toy engine's KV
knows where it came from, and every event is checked for conservation; a run that does not end is a
`Hang`.
"""

from dataclasses import replace
from queue import SimpleQueue

import pytest
from tests.support.engines import TestEngine, model_engine, tiny_model, toy_engine
from tests.support.script import Generated, Script, drain, max_steps, run, run_all
from tests.support.setups import Setup
from tests.support.step_prices import round_prices

from tandem.cost.neo.step_choice import StepEstimate, pipelines_as_published, pipelines_for_tokens
from tandem.cost.step_rates import step_prices
from tandem.kernels import native
from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.plan.strategy_names import STRATEGIES
from tandem.plan.weights import WeightPlacement
from tandem.spec.config import PreemptionMode
from tandem.spec.dtype import DType
from tandem.spec.errors import ContextLengthError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.precision import Precision
from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams

LAYERS = 2
BLOCK = 16
HYBRID = tuple(name for name in STRATEGIES if name != "gpu-only")
# attention of a row on the host takes about as long as a layer's stages
PRICES = round_prices(LAYERS, layer_s=1.0, device_key_s=1e-3, host_key_s=2e-2)

each_hybrid = pytest.mark.parametrize("strategy", HYBRID)


def setup(strategy: str, device_blocks: int, host_blocks: int, **changes: object) -> Setup:
    base = Setup(
        strategy=strategy,
        device_blocks=device_blocks,
        host_blocks=host_blocks,
        block_size=BLOCK,
        max_host_seqs=8,
        max_cohorts=2,
        interposition_budget=LAYERS,
        prefix_caching=False,
        prices=PRICES,
    )
    return replace(base, **changes)


def request(name: str, prompt: int, generate: int) -> EngineRequest:
    params = SamplingParams(max_tokens=generate, temperature=0.0, ignore_eos=True)
    ids = tuple((7 * i + prompt) % 45 + 1 for i in range(prompt))
    return EngineRequest(name, ids, params)


def tokens(results: dict[str, Generated]) -> dict[str, list[int]]:
    return {name: list(result.token_ids) for name, result in results.items()}


def plain(requests: list[EngineRequest]) -> dict[str, list[int]]:
    """What an engine with room for everything says."""
    with toy_engine(Setup(prefix_caching=False), LAYERS) as engine:
        return tokens(run_all(engine.core, requests))


@each_hybrid
@pytest.mark.parametrize("host_blocks", [12, 5])
def test_no_hang_where_the_cpu_has_no_more_blocks_than_the_gpu(
    strategy: str, host_blocks: int
) -> None:
    requests = [request(f"r{n}", 20 + 9 * n, 12) for n in range(5)]
    with toy_engine(setup(strategy, 12, host_blocks), LAYERS) as engine:
        assert tokens(run_all(engine.core, requests)) == plain(requests)
        engine.check_idle()


@each_hybrid
def test_a_prompt_larger_than_the_gpu_pool_runs_and_blocks_nobody(strategy: str) -> None:
    large = request("large", 6 * BLOCK, 8)
    requests = [large, *(request(f"small{n}", 10 + n, 8) for n in range(3))]
    with toy_engine(setup(strategy, 4, 20), LAYERS) as engine:
        assert tokens(run_all(engine.core, requests)) == plain(requests)
        engine.check_idle()


def test_a_prompt_larger_than_all_there_is_is_refused_on_arrival_and_blocks_nobody() -> None:
    small = request("small", 10, 4)
    with toy_engine(setup("gpu-only", 4, 0), LAYERS) as engine:
        with pytest.raises(ContextLengthError, match="KV blocks"):
            engine.core.add_request(request("large", 6 * BLOCK, 8))
        assert tokens(run_all(engine.core, [small])) == plain([small])
        engine.check_idle()


@each_hybrid
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_requests_that_outgrow_the_gpu_pool_run_on_to_their_ends(
    strategy: str, mode: PreemptionMode
) -> None:
    """Each alone outgrows it, and two both tiers; no step is left without rows while they wait for
    each other, and who was swapped out comes back.
    """
    requests = [request(f"r{n}", 40, 50) for n in range(3)]
    with toy_engine(setup(strategy, 5, 4, preemption_mode=mode), LAYERS) as engine:
        assert tokens(run_all(engine.core, requests)) == plain(requests)
        assert engine.stats.preemptions > 0
        engine.check_idle()


@each_hybrid
def test_a_long_host_request_that_does_not_fit_holds_up_no_other(strategy: str) -> None:
    """The long one comes before longer-running ones: they go on while it waits, and it has its turn
    when there is room.
    """
    first = [request(f"first{n}", 20, 40) for n in range(3)]
    long, after = request("long", 9 * BLOCK, 4), [request(f"after{n}", 12, 30) for n in range(2)]
    script = Script({0: first, 4: [long, *after]})
    gaps: dict[str, int] = {}
    with toy_engine(setup(strategy, 0, 14, max_host_seqs=0), LAYERS) as engine:
        results = run(Noting(engine, gaps), script, steps=max_steps(script, LAYERS))  # pyright: ignore[reportArgumentType]
        engine.check_idle()
    assert {result.finish_reason for result in results.values()} == {FinishReason.LENGTH}
    assert tokens(results) == plain([*first, long, *after])
    # a cohort takes a sweep per layer; four times that, and the sweeps that are launched ahead
    assert max(gaps[each.request_id] for each in first) <= 4 * LAYERS + 8


@pytest.mark.parametrize(
    ("strategy", "max_cohorts"), [*((name, 2) for name in HYBRID), ("auto", 0), ("neo", 0)]
)
def test_a_host_request_that_never_pays_has_its_turn_all_the_same(
    strategy: str, max_cohorts: int
) -> None:
    """The accelerator is kept full, and attention on the host takes so long that no step with the
    long one in it promises more tokens than one without.
    """
    prices = round_prices(LAYERS, layer_s=1.0, device_key_s=1e-4, host_key_s=50.0)
    first, long = [request(f"first{n}", 20, 40) for n in range(2)], request("long", 6 * BLOCK, 12)
    follow = [request(f"next{n}", 20, 40) for n in range(4)]
    script = Script({0: [*first, long], 20: follow})
    gaps: dict[str, int] = {}
    told = setup(strategy, 8, 12, prices=prices, max_cohorts=max_cohorts)
    with toy_engine(told, LAYERS) as engine:
        results = run(Noting(engine, gaps), script, steps=max_steps(script, LAYERS))  # pyright: ignore[reportArgumentType]
        engine.check_idle()
    assert tokens(results) == plain([*first, long, *follow])
    assert gaps["long"] <= 4 * LAYERS + 8


class Noting:
    """A core that notes the most steps between two tokens of a request."""

    def __init__(self, engine: TestEngine, gaps: dict[str, int]) -> None:
        self._core, self._gaps, self._step = engine.core, gaps, 0
        self._last: dict[str, int] = {}

    def step(self):
        self._step += 1
        outputs = self._core.step()
        for output in outputs:
            name = output.request_id
            gap = self._step - self._last.get(name, self._step)
            self._gaps[name] = max(gap, self._gaps.get(name, 0))
            self._last[name] = self._step
        return outputs

    def __getattr__(self, name: str) -> object:
        return getattr(self._core, name)


def test_neither_rows_nor_ids_run_out() -> None:
    """As many at once as there are rows, again and again, under the same ids."""
    rows = 3
    with toy_engine(Setup(max_num_seqs=rows, prefix_caching=False), LAYERS) as engine:
        for _ in range(40):
            requests = [request(str(n), 5 + n, 3) for n in range(rows)]
            for each in requests:
                engine.core.add_request(each)
            engine.core.step()
            assert engine.scheduler.rows.num_free == 0
            drain(engine.core)
            assert engine.scheduler.rows.num_free == rows
        engine.check_idle()


def test_attention_on_the_cpu_keeps_no_python_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps are submitted ahead while the attention that they wait for has not even begun."""
    if not native.available():
        pytest.skip(native.unavailable_message())
    from tandem.kernels.native_pool import Signal
    from tandem.runtime.host_tasks import HostTask

    gate, submit, held = Signal(), HostTask.submit, SimpleQueue[HostTask]()

    def gated(self: HostTask, after, then) -> None:
        submit(self, [*after, (gate, 1)], then)
        held.put(self)

    hybrid = setup("ride-along", 0, 24, kv_placement="host", executor="threaded")
    requests = [request("r", 20, 6)]
    with model_engine(tiny_model(), Setup(prefix_caching=False)) as engine:
        expected = tokens(run_all(engine.core, requests))
    monkeypatch.setattr(HostTask, "submit", gated)
    with model_engine(tiny_model(), hybrid) as engine:
        engine.core.add_request(requests[0])
        try:
            engine.core.step()
            engine.core.step()
            assert len(engine.scheduler.flight.steps) == 2
            assert not any(part.done for part in held.get(timeout=30).parts)
        finally:
            gate.set(1)
        results = Generated()
        while engine.core.has_work():
            for output in engine.core.step():
                results.token_ids += output.token_ids
    assert {"r": results.token_ids} == expected


def test_engines_in_one_process_share_no_buffers() -> None:
    hybrid = setup("ride-along", 0, 24, kv_placement="host")
    prompts = [request("a", 33, 8), request("b", 20, 8)]
    expected = [plain_model([each]) for each in prompts]
    with model_engine(tiny_model(), hybrid) as first, model_engine(tiny_model(), hybrid) as second:
        found: list[list[int]] = [[], []]
        for engine, each in zip((first, second), prompts, strict=True):
            engine.core.add_request(each)
        while first.core.has_work() or second.core.has_work():
            for number, engine in enumerate((first, second)):
                if engine.core.has_work():
                    for output in engine.core.step():
                        found[number] += output.token_ids
    assert found == expected


def plain_model(requests: list[EngineRequest]) -> list[int]:
    with model_engine(tiny_model(), Setup(prefix_caching=False)) as engine:
        (result,) = run_all(engine.core, requests).values()
    return list(result.token_ids)


@pytest.mark.parametrize("context", [BLOCK, 2 * BLOCK, 3 * BLOCK])
def test_a_full_last_block_is_followed_by_no_read_of_a_further_one(context: int) -> None:
    """Where a context ends with its block, the table's next entry is nobody's: here there is none
    in the pool, and what lies beyond the rows' own blocks would fail the kernels' checks.
    """
    blocks = context // BLOCK + 1
    hybrid = setup("ride-along", 0, blocks, kv_placement="host", executor="threaded")
    asked = [request("r", context - 4, 8)]
    with model_engine(tiny_model(), hybrid) as engine:
        (result,) = run_all(engine.core, asked).values()
    assert list(result.token_ids) == plain_model(asked)


def test_a_long_prefill_does_not_count_as_one_decode() -> None:
    """100 decodes in 1 s, or 90 decodes and a prompt of 3,000 tokens in 0.95 s."""
    pipelined, alone = StepEstimate(1.0, 100, 100), StepEstimate(0.95, 91, 90, 3000)
    assert pipelines_as_published(pipelined, alone)
    assert not pipelines_for_tokens(pipelined, alone, prefill_weight=0.1)


def test_launch_overhead_is_the_machines_own() -> None:
    """NEO's is 0.8 ms on any machine."""
    spec, hardware = plannable_spec("llama-3.1-8b"), load_hardware("small")
    plan = OnlinePlan(
        strategy="auto",
        weights=(WeightPlacement(0, spec.num_layers - 1),),
        device_blocks=1,
        host_blocks=1,
        block_size=BLOCK,
        max_model_len=512,
        max_num_seqs=8,
        max_num_batched_tokens=512,
        launch_ahead_steps=1,  # or it is hidden
    )

    def launch_s(seconds: float) -> float:
        quick = replace(
            hardware, accelerator=replace(hardware.accelerator, launch_latency_s=seconds)
        )
        precision = Precision.uniform(DType.FLOAT16)
        return step_prices(plan, spec, precision, quick, 1e3, 1e3).launch_s

    assert (launch_s(1e-5), launch_s(8e-4)) == (1e-5, 8e-4)
