"""The toy's memory notices the mistakes that it is there for: each is made here on purpose."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.support.engines import TOY_VOCAB, toy_engine
from tests.support.provenance import ProvenanceError, attend_pages
from tests.support.script import Script, max_steps, run
from tests.support.setups import Setup
from tests.support.toy_reference import greedy

from tandem.memory.pool import BlockPool
from tandem.plan.binding import TierAttention
from tandem.scheduler.in_flight import Flight
from tandem.scheduler.rows import RowTable
from tandem.scheduler.running import Running
from tandem.spec.errors import EngineDeadError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

NUM_LAYERS = 2
SEEDS = range(8)
TIGHT = Setup(device_blocks=14, block_size=4, executor="exact")
SWAP = replace(TIGHT, host_blocks=20, preemption_mode="swap")
COHORTS = replace(TIGHT, strategy="rendezvous", device_blocks=10, host_blocks=14)

HOSTED = replace(COHORTS, device_blocks=0, host_blocks=16, kv_placement="host")


def script(seed: int) -> Script:
    """Requests of changing lengths, one after the other, some aborted while they run."""
    rng = random.Random(seed)
    arrivals: dict[int, list[EngineRequest]] = {}
    aborts: dict[int, list[str]] = {}
    for number in range(14):
        prompt = tuple(rng.randrange(1, TOY_VOCAB) for _ in range(rng.randint(1, 24)))
        prompt = (5,) * rng.choice((0, 8)) + prompt
        params = SamplingParams(max_tokens=rng.randint(2, 14), temperature=0.0, ignore_eos=True)
        arrivals.setdefault(number // 2, []).append(EngineRequest(str(number), prompt, params))
        if rng.random() < 0.4:
            aborts.setdefault(rng.randint(3, 25), []).append(str(number))
    return Script(arrivals, aborts)


def goes_wrong(setup: Setup, seed: int) -> bool:
    todo = script(seed)
    try:
        with toy_engine(replace(setup, executor_seed=seed), NUM_LAYERS) as engine:
            results = run(engine.core, todo, steps=max_steps(todo, NUM_LAYERS))
    except (EngineDeadError, AssertionError, ValueError):
        return True
    return any(
        results[r.request_id].token_ids != greedy(r, num_layers=NUM_LAYERS, vocab_size=TOY_VOCAB)[0]
        for r in todo.requests
        if not results[r.request_id].aborted
    )


@pytest.mark.parametrize(
    "setup", [TIGHT, SWAP, COHORTS, HOSTED], ids=["device", "swap", "cohorts", "host"]
)
def test_nothing_goes_wrong_without_a_mistake(setup: Setup) -> None:
    assert not any(goes_wrong(setup, seed) for seed in SEEDS)


def no_leases(patch: pytest.MonkeyPatch) -> None:
    release = BlockPool.release
    patch.setattr(BlockPool, "release", lambda self, blocks, lease: release(self, blocks, None))


def leases_end_early(patch: pytest.MonkeyPatch) -> None:
    retire = Flight.retire

    def early(self: Flight, step_id: int) -> int | None:
        reached = retire(self, step_id)
        return None if reached is None else self.next_step + 10

    patch.setattr(Flight, "retire", early)


def tables_out_of_order(patch: pytest.MonkeyPatch) -> None:
    extend = RowTable.extend_blocks

    def swapped(self: RowTable, row: int, tier, blocks) -> None:
        before = self.num_blocks[row]
        extend(self, row, tier, blocks)
        if before < 3 <= self.num_blocks[row]:
            self.block_ids[row, [1, 2]] = self.block_ids[row, [2, 1]]

    patch.setattr(RowTable, "extend_blocks", swapped)


def owners_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    free = RowTable.free

    def forgetful(self: RowTable, row: int) -> None:
        free(self, row)
        self.epoch[row] -= 1

    patch.setattr(RowTable, "free", forgetful)


def members_leave_their_cohort(patch: pytest.MonkeyPatch) -> None:
    end = Running.end

    def leave(self: Running, sequence) -> None:
        if sequence.row is not None:
            self._rows.cohort[sequence.row] = 0
        end(self, sequence)

    patch.setattr(Running, "end", leave)


MISTAKES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Setup]] = {
    "no leases": (no_leases, SWAP),
    "leases end early": (leases_end_early, SWAP),
    "tables out of order": (tables_out_of_order, TIGHT),
    "owners not told apart": (owners_not_told_apart, TIGHT),
    "members leave their cohort": (members_leave_their_cohort, HOSTED),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, setup = MISTAKES[name]
    make(monkeypatch)
    assert any(goes_wrong(setup, seed) for seed in range(30))


def attention(positions: list[int], table: list[int]) -> TierAttention:
    return TierAttention(
        token_index=None,
        query_start=np.array([0, len(positions)], dtype=np.int32),
        num_decode=0,
        positions=np.array(positions, dtype=np.int32),
        block_table=np.array([table], dtype=np.int32),
        block_index=None,
    )


def test_a_slot_of_another_position_is_named() -> None:
    pages = np.zeros((3, 2, 1, 2, 1), dtype=np.int64)
    pages[1, 1, 0, :, 0] = 0, 1
    pages[2, 1, 0, :, 0] = 2, 3
    query = np.zeros(1, dtype=np.uint64)
    assert attend_pages(pages, attention([3], [1, 2]), query, "t").count.tolist() == [4]
    assert attend_pages(pages, attention([1], [1, 0]), query, "t").count.tolist() == [2]
    with pytest.raises(ProvenanceError, match=r"reads position 2 from block 0, which holds .* 0"):
        attend_pages(pages, attention([2], [1, 0]), query, "t")
