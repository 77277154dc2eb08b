"""What `run_all.sh` measures on a GPU, at tiny sizes on the emulated accelerator."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from benchmarks.gpu import links_part, part
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.gain import GAIN, gain_rows, host_bound, ratio_metric
from benchmarks.gpu.links_part import LAUNCHES
from benchmarks.gpu.neo_peer import NOT_THERE
from benchmarks.gpu.online_prediction import NOTHING_PREDICTED
from benchmarks.gpu.parts import parts_of
from benchmarks.gpu.plots import Bar, bars_of, draw_plots
from benchmarks.gpu.run import Start, run_parts
from benchmarks.gpu.scale import HYBRID
from benchmarks.gpu.tiny_scale import tiny
from benchmarks.gpu.whole_jobs import PEER

from tandem.bench.records import BenchRecord, BenchRow
from tandem.kernels import native
from tandem.probes import kernel_cases, linear_cases

compiled = pytest.mark.skipif(not native.available(), reason="a profile needs the compiled kernels")
TINY = {part.name: part for part in parts_of(tiny())}
REFUSED = {
    "launches, one graph beside the host was not run: this device has no such graphs, only those "
    "between attentions",
    NOT_THERE,
    f"predictions was not run: {NOTHING_PREDICTED}",
}


def measuring(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that may be the first to ask for a part."""
    return compiled(pytest.mark.slow(test))


class Measured:
    """The records of a call, in a folder: each part is measured when a test first asks for it."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.folder, self._start = folder, start

    def record(self, name: str) -> BenchRecord:
        """Of a part, which may choose by the profile."""
        path = self.folder / f"{name}.json"
        for each in ("profile", name):
            if not (self.folder / f"{each}.json").exists():
                limit = Deadline.after(500.0)
                parts = [TINY[each]]
                assert run_parts(parts, self.folder, limit, tiny=True, start=self._start) == []
        return BenchRecord.from_json(path.read_text())

    def rows(self, name: str) -> Sequence[BenchRow]:
        """Figures of a part."""
        return self.record(name).rows

    def variants(self, name: str) -> set[str]:
        """What a part's figures are of."""
        return {row.variant for row in self.rows(name)}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with pytest.MonkeyPatch.context() as patch:

        def here(
            command: Sequence[str], environment: Mapping[str, str], seconds: float, log: Path
        ) -> int:  # in this process: importing torch for each part would take most of the time
            del seconds, log
            patch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
            assert list(command[1:3]) == ["-m", "benchmarks.gpu.part"]
            return part.main(command[3:])

        # Nothing is measured: pages and copies need not exceed the caches, nor samples be long.
        patch.setattr(kernel_cases, "_POOL_BYTES", 0)
        patch.setattr(linear_cases, "_CACHE_MULTIPLE", 0)
        patch.setattr(links_part, "_LAUNCH_TOKENS", 8)
        yield Measured(tmp_path_factory.mktemp("measured"), here)


@measuring
@pytest.mark.parametrize("name", TINY)
def test_every_part_finds_figures(name: str, measured: Measured) -> None:
    record = measured.record(name)
    assert {note for note in record.notes if "was not run" in note} <= REFUSED
    # nothing may have been gained, nor launched as graphs of some kind
    assert all(
        row.value > 0
        for row in record.rows
        if row.metric != GAIN and not row.metric.startswith("launched as ")
    )
    assert record.rows or name == "host-amx"  # not every machine has it


@measuring
def test_the_profile_is_held_against_what_it_was_not_made_of(measured: Measured) -> None:
    held_out = [row for row in measured.rows("profile") if row.case.startswith("held out: ")]
    assert len(held_out) == 5


@measuring
def test_online_cells_are_of_strategies_and_peers(measured: Measured) -> None:
    notes = measured.record("online-llama-3.1-8b").notes
    assert any("nothing fits" in note for note in notes)  # plans of online cells need more memory
    assert any("attention by" in note for note in notes)
    variants = measured.variants("online-llama-3.1-8b")
    assert {HYBRID[0], PEER, f"gpu-only over {PEER}"} <= variants
    others = measured.rows("online-llama-3.1-8b-others")
    assert {*HYBRID[1:], *(f"{name} over gpu-only" for name in HYBRID[1:])} <= {
        row.variant for row in others
    }
    served = [row for row in others if row.unit == "GB/s"]
    assert {row.metric for row in served if row.variant == "ride-along"} >= {
        "link to the device, all copies",
        "link from the device, all copies",
    }
    (capped,) = {row.case for row in measured.rows("online-llama-3.1-8b-kv")}
    assert "390.6 KiB of device memory for KV" in capped
    for cell in ("online-qwen3-14b-int4", "online-qwen3-30b-a3b-int4"):
        assert measured.variants(cell) >= {"auto", "auto over gpu-only"}


@measuring
def test_larger_cells_are_of_every_way_of_streaming(measured: Measured) -> None:
    rows = measured.rows("larger-llama-3.1-8b")
    assert {row.variant for row in rows} == {"stream", "cpu", "mlp", "auto", "all"}
    assert {row.variant for row in rows if row.metric == ratio_metric("simulated")} == {
        "stream", "cpu", "mlp", "auto",
    }  # fmt: skip


@measuring
def test_planned_cells_hold_predictions_against_what_is_executed(measured: Measured) -> None:
    planned = measured.rows("planned-llama-3.1-8b")
    assert {row.variant for row in planned} == {"auto", "gpu-only", "auto over gpu-only", "all"}
    ratios = {(row.variant, row.metric) for row in planned if row.metric.endswith("over executed")}
    assert ratios == {
        (policy, ratio_metric(source))
        for policy in ("auto", "gpu-only")
        for source in ("predicted", "simulated")
    }
    assert len([row for row in planned if row.metric.startswith("median error")]) == 2
    assert measured.variants("offline-llama-3.1-8b") == {"auto", "kvpr", "all"}
    assert measured.variants("offline-llama-3.1-70b-int4") == {"auto", "all"}


@measuring
@pytest.mark.parametrize("cell", ["planned-llama-3.1-8b", "online-llama-3.1-8b"])
def test_cells_tell_the_bound_of_the_gain(cell: str, measured: Measured) -> None:
    gains = [row for row in measured.rows(cell) if row.metric == "bound of the gain"]
    assert "auto over gpu-only" in {row.variant for row in gains}


@measuring
def test_links_are_of_copies_launches_and_signals(measured: Measured) -> None:
    rows = measured.rows("links")
    graphs = [row for row in rows if row.metric == "graphs, time to record"]
    assert {row.variant for row in graphs} == {
        name for name, launch in LAUNCHES.items() if launch.graphs == "on" and not launch.is_hybrid
    }
    assert {"link", "launch", "signals"} <= {row.case for row in rows}
    launched = {name for name, launch in LAUNCHES.items() if not launch.is_hybrid}
    assert {row.variant for row in rows} >= {"each way at once", *launched}
    trips = [row.variant for row in rows if row.case == "signals"]
    assert [name.partition(",")[0] for name in trips] == ["kernel", "copy to the host"]


@measuring
def test_kernels_are_of_every_kind(measured: Measured) -> None:
    cases = {row.case.partition(",")[0].partition(" ")[0] for row in measured.rows("kernels")}
    assert cases == {"decode", "prefill", "linear", "dequantize", "experts", "sampling"}


@measuring
def test_the_host_is_right_by_every_instruction_set(measured: Measured) -> None:
    rows = measured.rows("host")
    errors = [row for row in rows if row.metric.startswith("largest error")]
    assert {row.variant for row in errors} == set(native.supported_isas())
    assert all(row.fraction is not None and row.fraction < 1 for row in errors)
    best = f"tandem {native.choose_isa()}"
    assert {"bandwidth", "rate"} <= {row.metric for row in rows if row.variant == best}


@measuring
def test_records_with_bounds_are_drawn(measured: Measured) -> None:
    records = {name: measured.record(name) for name in TINY}
    drawn = {path.stem for path in draw_plots(list(TINY.values()), measured.folder)}
    assert drawn == {
        name
        for name, record in records.items()
        if any(row.bound is not None for row in record.rows)
    }
    assert {"links", "kernels", "tiles", "online-llama-3.1-8b"} <= drawn


def test_without_a_solver_all_but_plans_can_be_measured() -> None:
    parts = [
        "online_part",
        "online_others",
        "links_part",
        "larger_part",
        "kernels_part",
        "host_part",
    ]
    imports = "; ".join(f"import benchmarks.gpu.{name}" for name in parts)
    code = f"import sys; sys.modules['highspy'] = None; {imports}"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def test_the_bound_of_the_gain_is_what_the_host_reads_beside() -> None:
    # 8 rows of 2 GB each at 4 tokens/s: a step of 2 s, in which the host reads the KV of 4 more
    assert host_bound(4.0, 8, 2e9, 4e9) == pytest.approx(4.0 * 1.5)


def test_a_gain_is_told_where_it_is_worth_it() -> None:
    little, much = (gain_rows("cell", "auto", 1.1, bound) for bound in (1.14, 1.25))
    assert [row.metric for row in little] == ["bound of the gain"]
    (share,) = [row for row in much if row.metric == GAIN]
    assert share.value == pytest.approx(0.4)
    assert share.fraction == pytest.approx(0.8)
    (lost,) = [row for row in gain_rows("cell", "auto", 0.9, 1.25) if row.metric == GAIN]
    assert lost.value == 0


def test_a_bar_is_a_figure_over_its_bound() -> None:
    rows = [
        BenchRow("link", "ours", "rate", 3.0, "GB/s", 4.0, (2.0, 5.0)),
        BenchRow("launch", "ours", "time", 3.0, "us"),
    ]
    assert list(bars_of(rows)) == [Bar("link: ours, rate", 0.75, 0.5, 1.25)]
