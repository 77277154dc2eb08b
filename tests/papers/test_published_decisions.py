"""Strategies `neo-published` and `apex-published` decide as the papers' listings do.

Random rows decode on the accelerator and on the host, prompts wait, times are drawn. The listings'
queues are the view's rows; both sides must then choose the same requests for the same batches.
Where a strategy differs by design, the test says so where it allows for it (docs/papers/neo.md,
docs/papers/apex.md).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.papers.apex_pseudo_code import Profiled, algorithm_1
from tests.papers.neo_pseudo_code import Batch, Req, load_aware_scheduling
from tests.support.engines import TestEngine, toy_engine
from tests.support.setups import Setup
from tests.support.step_prices import rising, round_prices

from tandem.bench.papers.published.admission import admit
from tandem.bench.papers.published.machine import BLOCK_SIZE, MAX_ROWS, PublishedMachine
from tandem.bench.papers.published.queues import Queues, Request
from tandem.cost.apex.overlap import MIN_HOST_ROWS_PER_ACCELERATOR_ROW
from tandem.cost.step_prices import AttentionPrice, StepPrices
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.apex import ApexAsPublished
from tandem.scheduler.strategies.neo import NeoAsPublished
from tandem.scheduler.view import SchedulerView
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.workload import RequestShape

LAYERS, ON_DEVICE, ON_HOST, WAITING = 4, 3, 20, 3
LAUNCH_S = 0.8e-3
SETUP = Setup(
    strategy="ride-along",
    device_blocks=64,
    host_blocks=200,
    max_num_seqs=ON_DEVICE + ON_HOST + WAITING,
    max_host_seqs=ON_HOST,
    max_device_seqs=ON_DEVICE,
    max_cohorts=1,
    max_cohort_rows=ON_HOST,
    interposition_budget=LAYERS,
    prefix_caching=False,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[TestEngine]:
    """All rows decode, and some prompts wait; nothing of it changes."""
    with _engine() as engine:
        yield engine


@contextmanager
def _engine() -> Iterator[TestEngine]:
    with toy_engine(SETUP, LAYERS) as engine:
        for number in range(ON_DEVICE + ON_HOST):
            engine.core.add_request(_request(number, 3 + 7 * number % 61))
        while not _settled(engine):
            engine.core.step()
        for number in range(WAITING):
            engine.core.add_request(_request(100 + number, 5 + 20 * number))
        yield engine


def _request(number: int, length: int) -> EngineRequest:
    params = SamplingParams(max_tokens=120, temperature=0.0, ignore_eos=True)
    prompt = tuple(i % 40 + 1 for i in range(length))
    return EngineRequest(str(number), prompt, params)


def _settled(engine: TestEngine) -> bool:
    """Whether all decode, and their tokens are known."""
    rows = engine.scheduler.rows
    ready = engine.scheduler.view().runnable.decodes
    return len(ready) == ON_DEVICE + ON_HOST and not rows.pending[ready].any()


@dataclass(frozen=True, slots=True)
class State:
    """A view with some of the rows and prompts, and a machine's times."""

    view: SchedulerView
    prices: StepPrices

    @property
    def mine(self) -> list[Req]:
        """Rows on the accelerator."""
        return [self._row(row) for row in self._rows(on_host=False)]

    @property
    def hosted(self) -> list[Req]:
        """Those on the host, as they came."""
        return [self._row(row) for row in self._rows(on_host=True)]

    @property
    def waiting(self) -> list[Req]:
        """Prompts, by their requests' ids."""
        return [
            Req(each.request_id, len(each.tokens), len(each.tokens)) for each in self.view.waiting
        ]

    def _rows(self, *, on_host: bool) -> list[int]:
        rows = self.view.by_rank(self.view.runnable.decodes)
        return rows[(self.view.rows.num_host_blocks[rows] > 0) == on_host].tolist()

    def _row(self, row: int) -> Req:
        return Req(f"row {row}", 1, int(self.view.rows.submitted[row]) + 1)


_HOST_OVER_UNIT = (0.01, 0.3, 1.0, 5.0, 50.0, 1000.0)


@st.composite
def choices(draw: st.DrawFn) -> tuple[set[int], int, StepPrices]:
    """Places of rows that are there, how many prompts wait, and the prices."""
    device = draw(st.sampled_from((0, 1, 1, 2, ON_DEVICE)))
    hosted = draw(st.sampled_from((0, 1, 5, 8, 16, ON_HOST)))
    kept = set(draw(st.permutations(range(ON_DEVICE)))[:device])
    kept |= set(draw(st.permutations(range(ON_DEVICE, ON_DEVICE + ON_HOST)))[:hosted])
    layer_s, unit_s = draw(st.floats(1e-5, 0.1)), draw(st.sampled_from((1e-6, 1e-4, 1e-3, 1e-2)))
    prices = replace(
        round_prices(LAYERS),
        layer=rising(layer_s, draw(st.sampled_from((0.0, 0.01, 0.3))) * layer_s),
        device=AttentionPrice(0.0, unit_s * draw(st.floats(0.01, 1.0)), 0.0, 0.0),
        host=AttentionPrice(
            0.0,
            unit_s * draw(st.sampled_from(_HOST_OVER_UNIT)),
            0.0,
            unit_s * draw(st.sampled_from((0.0, 1.0))),
        ),
    )
    return kept, draw(st.integers(0, WAITING)), prices


def state_of(engine: TestEngine, drawn: tuple[set[int], int, StepPrices]) -> State:
    """The engine's view with what was drawn."""
    kept, waiting, prices = drawn
    view = engine.scheduler.view()
    rows = view.runnable.decodes
    numbers = [int(engine.scheduler.running.sequence_of(row).request_id) for row in rows.tolist()]
    decodes = rows[np.array([number in kept for number in numbers], dtype=np.bool_)]
    free = replace(view.config, max_device_seqs=0, max_host_seqs=0)
    return State(
        view._replace(
            config=free,
            runnable=view.runnable._replace(decodes=decodes),
            waiting=list(view.waiting)[:waiting],
        ),
        prices,
    )


@dataclass(frozen=True, slots=True)
class NeoMachine:
    """Times of the state's machine. Steps 2, 3 and 5 have nothing to decide: where a row lies is
    decided by memory and rank when it begins, and no prompt that is read here goes to the host.
    """

    prices: StepPrices

    def need_swap_out(self, gpu_decoding_q: list[Req]) -> bool:
        return False

    def can_swap_in(self, gpu_decoding_q: list[Req], req: Req) -> bool:
        return False

    def can_prefill_to_gpu(self, req: Req, batches: list[Batch]) -> bool:
        return True

    def can_prefill_to_cpu(self, req: Req, batches: list[Batch]) -> bool:
        return False

    def reduce_cpu_prefill(self, batch: Batch, batches: list[Batch]) -> None:
        assert not batch.cpu_prefills

    def cpu_time_exceed_gpu(self, batches: list[Batch]) -> bool:
        first, second = batches
        hides_second = self._host_s(second) <= self._linear_s(first)
        return not (
            hides_second
            and self._host_s(first) <= self._linear_s(second) + self._accelerator_s(first)
        )

    def token_rate(self, batches: list[Batch]) -> float:
        """Requests over `T_tr` of section 3.2, with the code's 0.8 ms for each sub-batch."""
        requests = sum(len(batch.requests) for batch in batches)
        if len(batches) == 1:
            (alone,) = batches
            layer_s = self._linear_s(alone) + self._accelerator_s(alone) + LAUNCH_S
        else:
            first, second = batches
            layer_s = max(self._linear_s(first), self._host_s(second))
            layer_s += max(self._linear_s(second) + self._accelerator_s(first), self._host_s(first))
            layer_s += 2 * LAUNCH_S
        return requests / (LAYERS * layer_s)

    def _linear_s(self, batch: Batch) -> float:
        tokens = sum(req.tokens for req in batch.requests)
        return self.prices.layer.at(tokens) if tokens else 0.0

    def _accelerator_s(self, batch: Batch) -> float:
        keys = sum(req.keys for req in (*batch.gpu_decodes, *batch.gpu_prefills))
        return keys * self.prices.device.key_s

    def _host_s(self, batch: Batch) -> float:
        return sum(
            req.keys * self.prices.host.key_s + self.prices.host.query_s
            for req in batch.cpu_decodes
        )


def names(rows: np.ndarray) -> set[str]:
    return {f"row {row}" for row in rows.tolist()}


def started(proposal: StepProposal) -> set[str]:
    return {name for members in proposal.cohort_starts for name in names(members)}


@given(drawn=choices())
@settings(max_examples=300)
def test_neo_as_published_decides_as_appendix_a(
    engine: TestEngine, drawn: tuple[set[int], int, StepPrices]
) -> None:
    state = state_of(engine, drawn)
    machine = NeoMachine(state.prices)
    batches = load_aware_scheduling(state.waiting, state.mine, state.hosted, machine)
    proposal = NeoAsPublished().propose(state.view, state.prices)

    prompts = {each.request_id for each in proposal.admissions}
    assert prompts == {req.name for req in batches[0].gpu_prefills}
    if not (state.mine or state.waiting):
        # by design: where no row is there to hide them, those on the host ride along
        assert names(proposal.decode) == {req.name for req in state.hosted}
        return
    assert names(proposal.decode) == {
        req.name for req in (*batches[0].gpu_decodes, *batches[0].cpu_decodes)
    }
    second = batches[1].cpu_decodes if len(batches) > 1 else []
    assert started(proposal) == {req.name for req in second}
    assert not second or proposal.interposed_passes == LAYERS
    both = len(batches) > 1 and bool(batches[0].cpu_decodes)
    event(f"prompts {bool(prompts)}, batch 1 {bool(second)}, batch 0 from the host {both}")


# --- in virtual time ------------------------------------------------------------------------------

MACHINE = PublishedMachine(
    accelerator="a10g",
    host="g5.4xlarge",
    model="LLaMA-3.1-8B",
    host_bytes_per_s=25e9,
    device_blocks=40,
    host_blocks=100,
    step_tokens=400,
)


@dataclass(slots=True)
class BlocksMachine:
    """Memory of the published engine in whole blocks; of its times nothing is asked: no row on the
    host is taken, no prompt reduced. `keys` are the tokens whose KV is held.

    By design, as NEO's code has it: nothing comes back in an iteration in which something was
    swapped out, or beyond 95% of the accelerator's blocks; once a prompt has gone to the host, all
    behind it do; steps are bounded in tokens and rows; KV that goes to the host passes through the
    accelerator's blocks; the host's pool mirrors the accelerator's.
    """

    cpu_decoding_q: list[Req]
    swapped_out: bool = False

    def need_swap_out(self, gpu_decoding_q: list[Req]) -> bool:
        needs = _blocks(gpu_decoding_q) > MACHINE.device_blocks
        self.swapped_out |= needs
        return needs

    def can_swap_in(self, gpu_decoding_q: list[Req], req: Req) -> bool:
        fits = _blocks([*gpu_decoding_q, req]) <= round(0.95 * MACHINE.device_blocks)
        return fits and not self.swapped_out and len(gpu_decoding_q) < MAX_ROWS

    def can_prefill_to_gpu(self, req: Req, batches: list[Batch]) -> bool:
        first = batches[0]
        held = _blocks([*first.gpu_decodes, *first.gpu_prefills, req])
        to_gpu = not first.cpu_prefills and held <= MACHINE.device_blocks
        return to_gpu and self.can_prefill_to_cpu(req, batches)

    def can_prefill_to_cpu(self, req: Req, batches: list[Batch]) -> bool:
        first = batches[0]
        passing = _blocks([*first.cpu_prefills, req])
        on_host = _blocks(self.cpu_decoding_q) + passing
        rows, tokens = first.requests, sum(each.tokens for each in first.requests)
        return (
            passing <= MACHINE.device_blocks
            and on_host <= MACHINE.host_blocks - MACHINE.device_blocks
            and len(rows) < MAX_ROWS
            and tokens + req.tokens <= MACHINE.step_tokens
        )

    def cpu_time_exceed_gpu(self, batches: list[Batch]) -> bool:
        return True

    def reduce_cpu_prefill(self, batch: Batch, batches: list[Batch]) -> None:
        pass

    def token_rate(self, batches: list[Batch]) -> float:
        return 0.0


def _blocks(requests: list[Req]) -> int:
    return sum(-(-req.keys // BLOCK_SIZE) for req in requests)


_lengths = st.lists(st.integers(1, 200), max_size=12)


@given(waiting=_lengths, on_device=_lengths, on_host=_lengths)
@settings(max_examples=300)
def test_the_published_engine_swaps_and_reads_prompts_as_steps_2_and_3(
    waiting: list[int], on_device: list[int], on_host: list[int]
) -> None:
    queues = Queues.of(RequestShape(tokens, 5) for tokens in waiting)
    queues.on_device = [Request(RequestShape(tokens, 5)) for tokens in on_device]
    queues.on_host.extend(Request(RequestShape(tokens, 5)) for tokens in on_host)
    number_of = {
        id(each): str(number)
        for number, each in enumerate((*queues.waiting, *queues.on_device, *queues.on_host))
    }

    def listed(requests: Iterable[Request], *, prompts: bool) -> list[Req]:
        return [
            Req(number_of[id(each)], each.prompt_tokens if prompts else 1, each.context_tokens)
            for each in requests
        ]

    waiting_q = listed(queues.waiting, prompts=True)
    gpu_decoding_q = listed(queues.on_device, prompts=False)
    cpu_decoding_q = listed(queues.on_host, prompts=False)
    machine = BlocksMachine(cpu_decoding_q)
    batches = load_aware_scheduling(waiting_q, gpu_decoding_q, cpu_decoding_q, machine)
    found = admit(queues, MACHINE)

    assert listed(queues.on_device, prompts=False) == gpu_decoding_q == batches[0].gpu_decodes
    assert listed(queues.on_host, prompts=False) == cpu_decoding_q
    assert listed(found.to_device, prompts=True) == batches[0].gpu_prefills
    assert listed(found.to_host, prompts=True) == batches[0].cpu_prefills
    event(f"out {found.blocks_out > 0}, in {found.blocks_in > 0}, to host {bool(found.to_host)}")


# --- APEX -----------------------------------------------------------------------------------------


@given(drawn=choices())
@settings(max_examples=300)
def test_apex_as_published_decides_as_algorithm_1(
    engine: TestEngine, drawn: tuple[set[int], int, StepPrices]
) -> None:
    state, prices = state_of(engine, drawn), drawn[2]
    mine, hosted, waiting = state.mine, state.hosted, state.waiting
    keys = sum(req.keys for req in mine)
    tokens = len(mine) + sum(req.tokens for req in waiting)
    profiled = Profiled(
        n_g=1 / prices.device.key_s,
        n_c=1 / prices.host.key_s,
        t_glinear=prices.layer.at(len(mine)),
        t_gatt=keys * prices.device.key_s,
        t_glinear_pref=prices.layer.at(tokens),
        t_gatt_pref=(keys + sum(req.keys for req in waiting)) * prices.device.key_s,
    )
    returned = "Asymmetric Pipelining"  # by design, where no row on the accelerator is held up
    if mine or not hosted:
        returned = algorithm_1(len(waiting), len(mine), len(hosted), profiled)
    proposal = ApexAsPublished().propose(state.view, prices)

    assert names(proposal.decode) == {req.name for req in mine}
    assert {each.request_id for each in proposal.admissions} == {req.name for req in waiting}
    few = len(hosted) < MIN_HOST_ROWS_PER_ACCELERATOR_ROW * len(mine)
    if returned == "GPU-only" or (few and proposal.has_main):
        # section 4.2's rule of eight, which the listing leaves to how its queues are filled
        assert not proposal.cohort_starts
        return
    assert started(proposal) == {req.name for req in hosted}
    assert proposal.interposed_passes == (LAYERS if returned == "Asymmetric Pipelining" else 0)
    event(f"{returned}, prompts {bool(waiting)}")
