"""A mistake in a program is found twice: by the validator, and by running it in exact mode."""

from dataclasses import dataclass, replace
from functools import cache

import pytest
from tests.support.engines import model_engine, tiny_model
from tests.support.mutations import (
    Mutation,
    drop,
    drop_joins,
    drop_waits,
    is_op,
    move,
    swap_queues,
)
from tests.support.script import run_all
from tests.support.setups import Setup, streamed

from tandem.plan.program import LaneShape, OpKind, Part, ProgramOp, ProgramTemplate, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sampling_template, sweep_template
from tandem.plan.validator import Placed, ProgramError, validate, validate_sequence
from tandem.scheduler import step_compiler
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

NUM_LAYERS = 2
SEEDS = range(12)
SPLIT = Setup(
    strategy="ride-along", kv_placement="split", device_blocks=12, host_blocks=12, executor="exact"
)
COHORTS = replace(SPLIT, strategy="rendezvous")
PASSES = replace(SPLIT, strategy="asymmetric", interposition_budget=NUM_LAYERS)
STREAMED = Setup(executor="exact", homes=streamed(0, 1, 2, 3))

ON_DISK = Setup(
    executor="exact",
    homes=((0, "disk_streamed"), (1, "streamed"), (2, "disk_streamed"), (3, "disk_streamed")),
)
ON_CPU = replace(SPLIT, homes=((0, "cpu"), (2, "cpu"), (3, "cpu")))
BOTH_FROM_DISK = replace(
    SPLIT,
    homes=((0, "disk_streamed"), (1, "disk-cpu"), (2, "streamed"), (3, "disk_streamed")),
)
FROM_DISK = replace(SPLIT, homes=((0, "disk-cpu"), (1, "cpu"), (2, "disk-cpu"), (3, "disk-cpu")))

APPEND, COPY, STAGE, RESIDUAL = OpKind.APPEND, OpKind.COPY, OpKind.STAGE, Part.RESIDUAL
PRE_ON_CPU = is_op(STAGE, Part.PRE, Queue.CPU)
QKV_COPY = is_op(OpKind.COPY, Part.QKV)
UPLOAD = is_op(OpKind.COPY, Part.PARTIAL)

TOKENS_COPY = is_op(OpKind.COPY, Part.TOKENS)
HOST_APPEND = is_op(OpKind.APPEND, queue=Queue.CPU)
HOST_ATTEND = is_op(OpKind.ATTEND, queue=Queue.CPU)
DEVICE_ATTEND = is_op(OpKind.ATTEND, queue=Queue.ACCEL)
MERGE = is_op(OpKind.MERGE)


def riding_upload(op: ProgramOp) -> bool:
    """Uploads within the sweep; a join's wait for the sweep is about time, not about data."""
    return UPLOAD(op) and op.joins is None


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake, and an engine whose programs suffer from it."""

    id: str
    mutation: Mutation
    setup: Setup = SPLIT


FAULTS = (
    Fault("queries-copied-before-they-are-computed", drop_waits(QKV_COPY)),
    Fault("host-append-before-the-copy", drop_waits(HOST_APPEND)),
    Fault("upload-before-host-attention", drop_waits(riding_upload)),
    Fault("merge-before-upload", drop_waits(MERGE)),
    Fault("tokens-fetched-before-sampling", drop_waits(TOKENS_COPY)),
    Fault("no-copy-of-queries", drop(QKV_COPY)),
    Fault("no-copy-of-queries-in-the-last-layer", drop(is_op(OpKind.COPY, Part.QKV, layer=1))),
    Fault("no-upload", drop(UPLOAD)),
    Fault("no-upload-in-the-last-layer", drop(is_op(OpKind.COPY, Part.PARTIAL, layer=1))),
    Fault("no-wait-for-the-cohort", drop_joins(UPLOAD), COHORTS),
    Fault("no-wait-for-the-cohort-in-its-own-pass", drop_joins(UPLOAD), PASSES),
    Fault("no-wait-for-queries-of-a-pass", drop_waits(QKV_COPY), PASSES),
    Fault("no-copy-of-a-cohort's-queries", drop(is_op(OpKind.COPY, Part.QKV, layer=1)), COHORTS),
    Fault("layer-used-before-it-is-there", drop_waits(is_op(OpKind.STAGE, Part.PRE)), STREAMED),
    Fault("slot-filled-while-it-is-used", drop_waits(is_op(OpKind.LOAD)), STREAMED),
    Fault("layer-never-loaded", drop(is_op(OpKind.LOAD, layer=2)), STREAMED),
    Fault("copied-before-it-is-read", drop_waits(is_op(OpKind.LOAD), Queue.DISK), ON_DISK),
    Fault("read-over-what-is-copied", drop_waits(is_op(OpKind.READ)), ON_DISK),
    Fault("layer-never-read", drop(is_op(OpKind.READ, layer=2)), ON_DISK),
    Fault("computed-before-it-is-read", drop_waits(PRE_ON_CPU, Queue.DISK), FROM_DISK),
    Fault("read-over-what-is-computed", drop_waits(is_op(OpKind.READ)), FROM_DISK),
    Fault("computed-layer-never-read", drop(is_op(OpKind.READ, layer=2)), FROM_DISK),
    Fault("read-over-what-either-uses", drop_waits(is_op(OpKind.READ)), BOTH_FROM_DISK),
    Fault("read-for-the-cpu-left-out", drop(is_op(OpKind.READ, layer=1)), BOTH_FROM_DISK),
    Fault("residual-fetched-too-early", drop_waits(is_op(COPY, RESIDUAL, Queue.D2H)), ON_CPU),
    Fault("layer-on-the-cpu-too-early", drop_waits(is_op(STAGE, Part.PRE, Queue.CPU)), ON_CPU),
    Fault("queries-sent-too-early", drop_waits(is_op(COPY, Part.QKV, Queue.H2D)), ON_CPU),
    Fault("append-of-what-was-not-sent", drop_waits(is_op(APPEND, queue=Queue.ACCEL)), ON_CPU),
    Fault("result-fetched-too-early", drop_waits(is_op(COPY, Part.PARTIAL, Queue.D2H)), ON_CPU),
    Fault("merge-before-the-result", drop_waits(is_op(OpKind.MERGE, queue=Queue.CPU)), ON_CPU),
    Fault("residual-sent-too-early", drop_waits(is_op(COPY, RESIDUAL, Queue.H2D)), ON_CPU),
    Fault("residual-used-too-early", drop_waits(is_op(STAGE, RESIDUAL)), ON_CPU),
    Fault("residual-never-fetched", drop(is_op(COPY, RESIDUAL, Queue.D2H, 2)), ON_CPU),
    Fault("queries-never-sent", drop(is_op(COPY, Part.QKV, Queue.H2D, 3)), ON_CPU),
    Fault("result-never-fetched", drop(is_op(COPY, Part.PARTIAL, Queue.D2H, 3)), ON_CPU),
    Fault("merge-on-the-cpu", move(MERGE, Queue.CPU)),
    Fault("device-attention-on-the-cpu", move(DEVICE_ATTEND, Queue.CPU)),
    Fault("host-attention-on-the-device", move(HOST_ATTEND, Queue.ACCEL)),
    Fault("append-and-copy-swap-queues", swap_queues(HOST_APPEND, QKV_COPY)),
    Fault("upload-and-merge-swap-queues", swap_queues(UPLOAD, MERGE)),
)
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)

TEMPLATES = (
    sweep_template(NUM_LAYERS, (LaneShape(device=True, host=True),)),
    sweep_template(
        NUM_LAYERS,
        (LaneShape(), LaneShape(cursor=0, suspends=True, host=True, guarded=True)),
    ),
    sweep_template(NUM_LAYERS, (LaneShape(suspends=True, host=True),)),
    sweep_template(
        NUM_LAYERS,
        (
            LaneShape(),
            LaneShape(suspends=True, host=True),
            LaneShape(cursor=0, suspends=True, host=True, guarded=True, beside=1, after=1),
        ),
    ),
    sampling_template(1),
    sweep_template(4, (LaneShape(),), STREAMED.layers.usual),
    sweep_template(4, (LaneShape(host=True),), ON_CPU.layers.usual),
    sweep_template(4, (LaneShape(),), ON_DISK.layers.usual),
    sweep_template(4, (LaneShape(host=True),), FROM_DISK.layers.usual),
    sweep_template(4, (LaneShape(host=True),), BOTH_FROM_DISK.layers.usual),
)


def requests() -> list[EngineRequest]:
    params = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
    prompts = [tuple((5 * i + n) % 64 for i in range(n)) for n in (40, 35, 2)]
    return [EngineRequest(str(i), prompt, params) for i, prompt in enumerate(prompts)]


def layers_of(setup: Setup) -> int:
    return max((layer + 1 for layer, _ in setup.homes), default=NUM_LAYERS)


def tokens(setup: Setup, num_layers: int) -> dict[str, list[int]]:
    with model_engine(tiny_model(num_layers, layers=setup.layers), setup) as engine:
        results = run_all(engine.core, requests())
    return {request_id: result.token_ids for request_id, result in results.items()}


@cache
def expected(num_layers: int) -> dict[str, list[int]]:
    return tokens(Setup(), num_layers)


def check(template: ProgramTemplate) -> None:
    """Also after itself, where it depends on the sweep before."""
    validate(template)
    if any(op.kind in (OpKind.LOAD, OpKind.READ) for op in template.ops):
        validate_sequence([Placed(template, (0,))] * 2)


@pytest.fixture
def faulty(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> Fault:
    """The scheduler compiles to mutated templates, unseen by the validator."""

    def sweep(
        num_layers: int, lanes: tuple[LaneShape, ...], layers: SweepLayers
    ) -> ProgramTemplate:
        return fault.mutation(sweep_template(num_layers, lanes, layers))

    def sampling(num_lanes: int) -> ProgramTemplate:
        return fault.mutation(sampling_template(num_lanes))

    monkeypatch.setattr(step_compiler, "cached_sweep", sweep)
    monkeypatch.setattr(step_compiler, "cached_sampling", sampling)
    return fault


@each_fault
def test_the_validator_finds_it(fault: Fault) -> None:
    found: list[str] = []
    for template in TEMPLATES:
        mutated = fault.mutation(template)
        if mutated.ops == template.ops:
            continue
        with pytest.raises(ProgramError) as error:
            check(mutated)
        found.append(str(error.value))
    assert found


@each_fault
def test_an_adversarial_order_finds_it(faulty: Fault) -> None:
    num_layers = layers_of(faulty.setup)

    def goes_wrong(seed: int) -> bool:
        try:
            made = tokens(replace(faulty.setup, executor_seed=seed), num_layers)
        except EngineDeadError:
            return True
        return made != expected(num_layers)

    assert any(goes_wrong(seed) for seed in SEEDS)


@pytest.mark.parametrize(
    "setup",
    [SPLIT, COHORTS, STREAMED, ON_CPU, ON_DISK, FROM_DISK, BOTH_FROM_DISK],
    ids=["split", "cohorts", "streamed", "on-cpu", "on-disk", "from-disk-on-the-cpu", "both"],
)
def test_whole_programs_pass(setup: Setup) -> None:
    num_layers = layers_of(setup)
    for seed in SEEDS:
        assert tokens(replace(setup, executor_seed=seed), num_layers) == expected(num_layers)
    for template in TEMPLATES:
        check(template)
