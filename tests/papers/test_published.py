"""The papers' published schedulers in virtual time: who is where, what an iteration takes."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.bench.papers import apex_published, neo_published
from tandem.bench.papers.apex_published import published_apex_cells
from tandem.bench.papers.artifact import ALONE, Job, Pace, Setting, pace
from tandem.bench.papers.asked import around
from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.hybrid_pairs import G5_4XLARGE
from tandem.bench.papers.neo_published import (
    a10g_beside,
    calibrated_share,
    published_neo_cells,
    t4_beside_g4dn,
)
from tandem.bench.papers.published.apex import PublishedApex
from tandem.bench.papers.published.gpu_only import GpuOnly
from tandem.bench.papers.published.machine import LayerTimes, PublishedMachine
from tandem.bench.papers.published.neo import PublishedNeo
from tandem.bench.papers.published.queues import (
    Iteration,
    Queues,
    Request,
    blocks_of,
    contexts_of,
)
from tandem.bench.papers.published.serving import PublishedScheduler, Served, serve
from tandem.bench.papers.published.sub_batches import SubBatches
from tandem.spec.workload import RequestShape

MACHINE = PublishedMachine(
    accelerator="a10g",
    host="g5.4xlarge",
    model="LLaMA-3.1-8B",
    host_bytes_per_s=25e9,
    device_blocks=40,
    host_blocks=200,
    step_tokens=400,
)
TIMES = LayerTimes(MACHINE.prices())
SCHEDULERS = [GpuOnly, PublishedNeo, PublishedApex]
shapes_drawn = st.lists(
    st.builds(
        lambda prompt, out: RequestShape(prompt, out), st.integers(1, 300), st.integers(1, 60)
    ),
    min_size=1,
    max_size=25,
)


class Watched:
    """A scheduler whose memory and order are checked in every iteration."""

    def __init__(self, scheduler: PublishedScheduler) -> None:
        self._scheduler, self.iterations = scheduler, list[Iteration]()

    def step(self, queues: Queues) -> Iteration:
        found = self._scheduler.step(queues)
        self.iterations.append(found)
        begun = [*found.to_device, *found.to_host]
        assert begun == list(queues.waiting)[: len(begun)]
        on_device = blocks_of([*queues.on_device, *found.to_device])
        assert on_device <= MACHINE.device_blocks
        ran = [*found.decoded, *begun]
        assert len({id(each) for each in ran}) == len(ran)
        assert len(found.decoded) + sum(each.prompt_tokens for each in begun) <= MACHINE.step_tokens
        return found


@pytest.mark.parametrize("kind", SCHEDULERS)
@settings(max_examples=40)
@given(shapes=shapes_drawn)
def test_everybody_is_served_within_the_memory_and_in_order(
    kind: type[GpuOnly], shapes: list[RequestShape]
) -> None:
    watched = Watched(kind(MACHINE, TIMES))
    served = serve(watched, shapes, TIMES)
    assert len(served.ends_s) == len(shapes)
    assert all(before <= after for before, after in pairwise(served.ends_s))
    tokens = sum(
        len(each.decoded) + len(each.to_device) + len(each.to_host) for each in watched.iterations
    )
    assert tokens == sum(shape.generated_tokens for shape in shapes)


def test_the_baseline_reads_whole_prompts_beside_decodes() -> None:
    """Two that fit: both prompts at once, then both decode; by hand from the same prices."""
    shapes = [RequestShape(100, 2), RequestShape(60, 2)]
    served = serve(GpuOnly(MACHINE, TIMES), shapes, TIMES)
    prompts_s = TIMES.linear_s(160) + TIMES.prompt_s(100) + TIMES.prompt_s(60)
    decodes_s = TIMES.linear_s(2) + TIMES.decode_s([101, 61])
    expected_s = 32 * (prompts_s + decodes_s) + 2 * TIMES.head_s(2)
    assert served.ends_s[-1] == pytest.approx(expected_s)


def test_the_baseline_swaps_out_who_came_last_and_reads_no_prompt_until_it_is_back() -> None:
    queues = Queues.of([RequestShape(16, 9)])
    first, last = Request(RequestShape(319, 9)), Request(RequestShape(320, 9))
    queues.on_device = [first, last]
    first.advance()
    scheduler = GpuOnly(MACHINE, TIMES)
    assert not scheduler.step(queues).blocks_out
    first.advance()
    step = scheduler.step(queues)
    assert (step.blocks_out, list(queues.on_host), queues.on_device) == (20, [last], [first])
    assert not step.to_device
    first.left_tokens = 0
    queues.drop_finished()
    step = scheduler.step(queues)
    assert (step.blocks_in, queues.on_device, list(step.to_device)) == (20, [last], [])


def test_prompts_go_to_the_accelerator_until_one_does_not_fit() -> None:
    queues = Queues.of([RequestShape(tokens, 5) for tokens in (100, 100, 50)])
    queues.on_device = [Request(RequestShape(500, 5))]
    queues.on_host.extend([Request(RequestShape(200, 5)) for _ in range(3)])
    step = PublishedNeo(MACHINE, TIMES).step(queues)
    # 32 blocks are held, 7 more fit; the third would fit, but for those before it
    assert [each.prompt_tokens for each in step.to_device] == [100]
    assert all(each.prompt_tokens in (100, 50) for each in step.to_host)


@given(
    contexts=st.lists(st.integers(1, 3000), max_size=40),
    prompts=st.lists(st.integers(1, 2000), max_size=5),
)
@settings(max_examples=60)
def test_sub_batches_never_let_the_accelerator_wait(
    contexts: list[int], prompts: list[int]
) -> None:
    waiting = [Request(RequestShape(tokens, 5)) for tokens in prompts]
    hosted = [Request(RequestShape(tokens, 5)) for tokens in contexts]
    batches = SubBatches(TIMES, [400, 600], waiting, 1)
    batches.place(hosted, 30)
    assert sum(map(len, batches.rows)) <= 30
    batches.drop_prompts()
    if any(batches.rows):
        assert batches.layer.hides_host
        assert batches.layer.time_s == pytest.approx(batches.accelerator_s)
    assert waiting[: min(1, len(waiting))] == batches.prompts[: min(1, len(waiting))]
    fresh = SubBatches(TIMES, [400, 600], batches.prompts, 1)
    for batch, rows in enumerate(batches.rows):
        for row in rows:
            fresh._add(batch, row, 1)
    assert fresh.layer.time_s == pytest.approx(batches.layer.time_s)


def test_a_row_that_overlaps_takes_a_sweep_per_layer() -> None:
    """Its host so slow that no second sub-batch pays, but fast enough for one layer per sweep."""
    queues = Queues.of([])
    queues.on_device = [Request(RequestShape(590, 99))]
    queues.on_host.extend([Request(RequestShape(300, 99)) for _ in range(9)])
    slow = PublishedMachine("a10g", "g5.4xlarge", "LLaMA-3.1-8B", 2e9, 40, 400, 400)
    times = LayerTimes(slow.prices())
    scheduler, steps = PublishedApex(slow, times), 0
    while True:
        step, steps = scheduler.step(queues), steps + 1
        assert list(step.decoded[:1]) == queues.on_device
        if len(step.decoded) > 1:
            break
        assert len(queues.crossing) == 9
        assert not queues.on_host
    assert steps == times.num_layers + 1
    assert len(step.decoded) == 10
    assert not queues.crossing
    assert len(queues.on_host) == 9


def test_fewer_than_eight_for_each_on_the_accelerator_do_not_overlap() -> None:
    queues = Queues.of([])
    queues.on_device = [Request(RequestShape(590, 99))]
    queues.on_host.extend([Request(RequestShape(300, 99)) for _ in range(7)])
    slow = PublishedMachine("a10g", "g5.4xlarge", "LLaMA-3.1-8B", 2e9, 40, 400, 400)
    scheduler = PublishedApex(slow, LayerTimes(slow.prices()))
    assert list(scheduler.step(queues).decoded) == queues.on_device
    assert not queues.crossing


def test_who_outgrows_the_memory_is_told() -> None:
    with pytest.raises(ValueError, match="outgrows"):
        serve(GpuOnly(MACHINE, TIMES), [RequestShape(395, 400)], TIMES)


def test_throughput_is_measured_between_ends() -> None:
    served = Served((1.0, 2.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 20.0))
    assert served.requests_per_s() == pytest.approx(0.5)
    assert served.requests_per_s(0.3, 0.7) == pytest.approx(4 / (13.0 - 5.0))


def test_engines_are_as_in_the_artifact() -> None:
    setting = a10g_beside("g5.8xlarge", 0.5)
    own, alone = setting.machine("neo"), setting.machine(ALONE)
    assert (own.device_blocks, alone.device_blocks) == (1600, 1650)
    assert own.host_blocks * 16 * 131072 == pytest.approx(60 * 2**30, rel=1e-3)
    assert alone.host_blocks == own.host_blocks // 8
    assert own.host_bytes_per_s == pytest.approx(G5_4XLARGE.host_bytes_per_s)
    assert t4_beside_g4dn(1.0).machine(ALONE).device_blocks == 54
    prices = LayerTimes(own.prices())
    assert contexts_of([Request(RequestShape(9, 1))]) == [9]
    on_device, on_host = prices.attention_rates()
    assert on_device / on_host == pytest.approx(0.85 * 600e9 / own.host_bytes_per_s)


def test_a_faster_host_gains_more() -> None:
    job = Job(around(1000), around(200), requests=120)
    alone = pace(a10g_beside("g5.4xlarge", 0.5), ALONE, job).whole
    gains = [
        pace(a10g_beside(f"g5.{size}xlarge", 0.5), "neo", job).whole / alone for size in (4, 8, 16)
    ]
    assert gains == sorted(gains)
    assert gains[0] > 1


def fake_pace(setting: Setting, policy: str, job: Job) -> Pace:
    """Gains in proportion to the host's rate, whatever the requests."""
    if policy == ALONE:
        return Pace(10.0, 8.0)
    gain = setting.host_bytes_per_s / 170e9
    return Pace(10.0 * (1 + gain), 8.0 * (1 + gain / 2)) if policy == "neo" else Pace(30.0, 16.0)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(neo_published, "pace", fake_pace)
    monkeypatch.setattr(
        apex_published,
        "paces",
        lambda setting, policies, job: {each: fake_pace(setting, each, job) for each in policies},
    )
    calibrated_share.cache_clear()
    yield
    calibrated_share.cache_clear()


@pytest.mark.usefixtures("faked")
def test_one_host_is_calibrated_and_the_others_follow() -> None:
    cells = {cell.cell: cell for cell in published_neo_cells()}
    by_host = {name: cell for name, cell in cells.items() if "peak gain" in name}
    assert [cell.role for cell in by_host.values()] == [
        Role.SCORED, Role.CALIBRATED, Role.SCORED, Role.SCORED,
    ]  # fmt: skip
    gains = [cell.predicted or 0 for cell in by_host.values()]
    assert gains[1] == pytest.approx(0.133, rel=0.01)
    assert gains == pytest.approx([gains[1], gains[1], 2 * gains[1], 4 * gains[1]])
    others = [cells["A10G: largest gain"], cells["T4: largest gain"]]
    assert {cell.role for cell in others} == {Role.LISTED}


@pytest.mark.usefixtures("faked")
def test_apexs_gains_are_scored_with_the_calibrated_host_alone() -> None:
    cells: list[PaperCell] = list(published_apex_cells())
    scored = [cell.cell for cell in cells if cell.role is Role.SCORED]
    assert len(scored) == 6
    assert len(cells) == 16
    assert {cell.role for cell in cells[8:]} == {Role.WHAT_IF}
    over_vllm = next(cell for cell in cells if cell.cell == "T4 over vLLM, largest")
    assert over_vllm.predicted == pytest.approx(2.0)
    assert over_vllm.note == "100.0% over the whole job"
