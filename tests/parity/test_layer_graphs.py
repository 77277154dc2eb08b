"""Hybrid steps of which the layers are graphs give the tokens of their operations, in every
architecture and strategy.

As in `test_decode_graphs.py`, what the host would have to tell a graph comes out wrong; here also
what lies in memory that graphs share and is read after the next one.
"""

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from tests.parity.generation import PROMPTS, generate
from tests.parity.tiny_models import CASES, Case, build
from tests.support.engines import TestEngine, model_engine, tiny_model
from tests.support.setups import Setup

from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.plan import decode_sweep
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import Home
from tandem.runtime.layer_graphs import LayerGraphs
from tandem.runtime.running import Running
from tandem.spec.kv_type import CodeType

_TOKENS = 12


def setup(strategy: str, **options: object) -> Setup:
    """A part of every row's keys on the host; the exact emulator's order."""
    base = {
        "strategy": strategy,
        "device_blocks": 32,
        "host_blocks": 32,
        "kv_placement": "split",
        "max_num_seqs": 4,
        "max_cohorts": 2,
        "max_cohort_rows": 2,
        "executor": "exact",
        "executor_seed": 7,
    }
    return Setup(**(base | options))  # pyright: ignore[reportArgumentType]


def scarce(strategy: str, **options: object) -> Setup:
    """Some rows' keys are on the device, and others' on the host."""
    base = {"kv_placement": "auto", "device_blocks": 6}
    return setup(strategy, **(base | options))


WAYS = {
    "host-only": setup("ride-along", kv_placement="host", device_blocks=4),
    "plain-loop": setup("ride-along", overlap=False),
    "prompts-among-decodes": setup("ride-along", max_num_batched_tokens=12, max_num_seqs=12),
    "spilled": scarce("ride-along"),
    "swapped": setup("ride-along", device_blocks=11, preemption_mode="swap"),
    "rendezvous": setup("rendezvous"),
    "rendezvous-host": setup("rendezvous", kv_placement="host"),
    "rendezvous-spilled": scarce("rendezvous"),
    "rendezvous-threads": scarce("rendezvous", executor="threaded"),
    "rendezvous-other-order": setup("rendezvous", executor_seed=11),
    "asymmetric": setup("asymmetric", interposition_budget=1, max_cohort_rows=1),
    "asymmetric-spilled": scarce("asymmetric", interposition_budget=64),
    "neo": scarce("neo"),
    "apex": scarce("apex"),
    "auto": scarce("auto"),
}


def _family(case: Case) -> str:
    return case.id.partition("-")[0]


_CHOSEN = [next(cases) for _, cases in groupby(CASES, _family)]


def graphs_of(engine: TestEngine) -> LayerGraphs:
    graphs = engine.machine.runner.layer_graphs
    assert graphs is not None
    return graphs


def agree(model: Model, setup: Setup, prompts: tuple[tuple[int, ...], ...] = PROMPTS) -> None:
    with model_engine(model, setup) as engine:
        expected = generate(engine.core, prompts, _TOKENS)
    with model_engine(model, replace(setup, graphs=True)) as engine:
        assert generate(engine.core, prompts, _TOKENS) == expected
        engine.check_idle()
        graphs = graphs_of(engine)
    assert graphs.recording.problem is None
    assert graphs.num_replayed >= 2 * model.spec.num_layers
    assert len({tuple(made) for made in expected}) > 1


@pytest.mark.parametrize("case", _CHOSEN, ids=lambda case: case.id)
def test_every_architecture(case: Case, tmp_path: Path) -> None:
    build(case, tmp_path)
    agree(load_model(tmp_path), setup("rendezvous"))


@pytest.mark.parametrize("name", WAYS)
def test_every_strategy(name: str) -> None:
    """Layers enough for a cohort to come back to one that others have passed."""
    model = tiny_model(num_layers=5)
    size = model.spec.vocab_size
    agree(model, WAYS[name], tuple(tuple(i % size for i in prompt) for prompt in PROMPTS))


def test_quantized_pages(tmp_path: Path) -> None:
    # head dimensions of codes are multiples of 32
    build(next(case for case in CASES if case.id == "llama-31-rope"), tmp_path)
    agree(load_model(tmp_path), setup("ride-along", kv=CodeType.INT8))


@pytest.mark.parametrize("name", ["rendezvous-spilled", "asymmetric", "apex"])
def test_layers_that_a_cohort_makes_too_large_for_graphs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a sweep some layers are graphs, and others operations."""
    monkeypatch.setattr(decode_sweep, "row_buckets", lambda most: (1, 2))
    launch, steps = LayerGraphs.run, {True: set[int](), False: set[int]()}

    def noted(self: LayerGraphs, running: Running) -> bool:
        launched = launch(self, running)
        if running.context.active(running.op):
            steps[launched].add(running.context.program.step_id)
        return launched

    monkeypatch.setattr(LayerGraphs, "run", noted)
    model = tiny_model(num_layers=5)
    prompts = tuple(tuple(i % 64 for i in prompt) for prompt in PROMPTS)
    with model_engine(model, WAYS[name]) as engine:
        expected = generate(engine.core, prompts, _TOKENS)
    with model_engine(model, replace(WAYS[name], graphs=True)) as engine:
        assert generate(engine.core, prompts, _TOKENS) == expected
        engine.check_idle()
    assert steps[True] & steps[False]


def placed(strategy: str, homes: dict[int, Home], *rules: CpuRule, **options: object) -> Setup:
    return setup(strategy, homes=tuple(homes.items()), cpu_rules=rules, **options)


MIXED = {
    "streamed": placed("ride-along", {1: "streamed", 2: "streamed", 4: "streamed"}),
    "streamed-alone": placed(
        "gpu-only", {0: "streamed", 2: "streamed", 5: "streamed"}, kv_placement="device"
    ),
    "streamed-cohorts": placed("rendezvous", {1: "streamed", 3: "streamed", 5: "streamed"}),
    "streamed-swapped": placed(
        "ride-along", {0: "streamed", 2: "streamed", 4: "streamed"},
        device_blocks=11, preemption_mode="swap",
    ),
    "cpu": placed("ride-along", {2: "cpu"}),
    "cpu-first": placed("ride-along", {0: "cpu", 1: "cpu", 4: "cpu"}, executor_seed=11),
    "cpu-cohorts": placed("rendezvous", {2: "cpu", 5: "cpu"}, kv_placement="host"),
    "cpu-threads": placed("rendezvous", {1: "cpu", 4: "cpu"}, executor="threaded"),
    "mlps-on-the-cpu": placed("ride-along", {1: "cpu-mlp", 2: "cpu-mlp", 4: "cpu-mlp"}),
    "mlps-streamed": placed("rendezvous", {0: "host-mlp", 3: "host-mlp", 4: "host-mlp"}),
    "by-step": placed(
        "auto", {0: "host", 1: "host", 2: "host", 4: "host-mlp"},
        CpuRule(2, (2, 4)), CpuRule(9, (0, 1, 2, 4)), kv_placement="auto", device_blocks=6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_layers_that_stay_beside_others(name: str) -> None:
    """Between layers that come, or that the CPU computes, what is there is graphs."""
    wanted = MIXED[name]
    model = tiny_model(num_layers=6, layers=wanted.layers)
    size = model.spec.vocab_size
    agree(model, wanted, tuple(tuple(i % size for i in prompt) for prompt in PROMPTS))
