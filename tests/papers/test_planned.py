"""Published gains asked of the planner: machines, arithmetic, and what is missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from tandem.bench.papers import apex_planned, neo_planned
from tandem.bench.papers.asked import AUTO, BASELINE, RESIDENT, Asked, Speeds, around, speeds
from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.neo import host_share
from tandem.bench.papers.planned import CEILING, MISSING, PublishedGain
from tandem.bench.papers.plot_gains import plot_gains

FEW = Speeds(100, {BASELINE: 10, RESIDENT: 8, "neo": 12, "apex": 15, AUTO: 16}, 0.7)
MANY = Speeds(900, {BASELINE: 10, RESIDENT: 10, "neo": 11, "apex": 11, AUTO: 20}, 1.5)
PUBLISHED = PublishedGain("neo", "figure 1", "a card", 0.25, "neo", Role.SCORED, assumed="lengths")


def fake(asked: Asked, policies: tuple[str, ...]) -> Speeds:
    assert set(policies) <= set(FEW.by_policy)
    return FEW


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[PaperCell]:
    monkeypatch.setattr(neo_planned, "speeds", fake)
    monkeypatch.setattr(apex_planned, "speeds", fake)
    return [*neo_planned.planned_neo_cells(), *apex_planned.planned_apex_cells()]


def test_a_gain_is_the_largest_over_outputs_of_each_that_says_one() -> None:
    cells = {cell.predictor: cell for cell in PUBLISHED.cells([FEW, MANY])}
    predicted = {name: cell.predicted for name, cell in cells.items()}
    assert predicted == pytest.approx(
        {
            "planner, neo": 0.2,
            "planner, neo over resident layers": 0.5,
            "planner, auto": 1.0,
            CEILING: 1.5,
        }
    )
    own = cells.pop("planner, neo")
    assert (own.role, own.error) == (Role.SCORED, pytest.approx(-0.2))
    assert own.note == "12 over 10 tokens/s at 100 out; assumed: lengths"
    assert {cell.role for cell in cells.values()} == {Role.WHAT_IF}
    resident = cells["planner, neo over resident layers"]
    assert resident.note == "at 100 out; streaming layers, the accelerator alone is 25% faster"


def test_gains_over_neo_are_over_the_planners_neo() -> None:
    over = replace(PUBLISHED, policy="apex", over="neo")
    (cell,) = over.cells([FEW])
    assert cell.predicted == pytest.approx(15 / 12 - 1)


def test_hosts_follow_g5_4xlarge_by_1_1_2_4() -> None:
    rates = [neo_planned.a10g_beside(f"g5.{size}xlarge").host_bytes_per_s for size in (2, 4, 8, 16)]
    base = rates[1]
    assert rates == pytest.approx([base, base, 2 * base, 4 * base])
    assert base == pytest.approx(17.4e9, rel=0.01)
    assert apex_planned.a10().host_bytes_per_s == pytest.approx(host_share() * 409.6e9)
    question = neo_planned.a10g_beside("g5.16xlarge").question()
    assert question.hardware.host.memory_bandwidth_bytes_per_s == pytest.approx(4 * base)


def test_every_published_gain_is_predicted_or_says_what_is_missing(
    planned: list[PaperCell],
) -> None:
    own = [cell for cell in planned if cell.role is not Role.WHAT_IF]
    missing = {cell.cell: cell.note for cell in own if cell.predicted is None}
    assert len(own) == len({(cell.paper, cell.place, cell.cell) for cell in own}) == 22
    assert len(missing) == 6
    assert all(note.startswith(MISSING) for note in missing.values())
    assert "two accelerators" in missing["H100: largest gain"]
    assert "LiveBench's prompts" in missing["A10, LiveBench, over NEO"]
    calibrated = [cell.cell for cell in own if cell.role is Role.CALIBRATED]
    assert calibrated == ["A10G, g5.4xlarge: peak gain"]


def test_contradictory_claims_and_those_at_a_bound_are_listed(planned: list[PaperCell]) -> None:
    listed = {cell.cell for cell in planned if cell.role is Role.LISTED and cell.predicted}
    assert listed == {
        "T4: largest gain",
        "A10G: largest gain",
        "A10G at 2 s",
        "T4 at 1 s",
        "A10 over vLLM, largest",
        "T4 over NEO, largest",
    }
    at_load = [cell for cell in planned if cell.place == "figure 6" and cell.role is Role.LISTED]
    assert ["no bound on latency" in cell.note for cell in at_load] == [False, True, True]


def test_the_planner_is_asked_and_nothing_exceeds_its_ceiling() -> None:
    """A T4 with Llama-2-7B: hardly any room for KV, where the host's memory is worth most."""
    found = speeds(apex_planned.t4().giving(125), ("apex", "neo"))
    assert found.generate_tokens == pytest.approx(125, rel=0.02)
    assert found.gain("apex") > 1
    assert found.gain(AUTO) >= found.gain("apex") - 0.01 * (1 + found.gain("apex"))
    assert found.ceiling_gain > found.gain(AUTO)
    assert found.gain(BASELINE, RESIDENT) > 0


def test_lengths_are_within_a_tenth() -> None:
    assert (around(1000).low, around(1000).high) == (900, 1100)


def test_gains_are_drawn_per_paper(planned: list[PaperCell], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plain = PaperCell("kvpr", "table 1", "a", "s", 2.0, 1.0)
    files = plot_gains([plain, *planned], tmp_path)
    assert [file.name for file in files] == ["neo-gains.png", "apex-gains.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
