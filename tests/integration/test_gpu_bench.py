"""What `run_all.sh` measures on a GPU, at tiny sizes on the emulated accelerator."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from benchmarks.gpu import part
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.gain import GAIN, gain_rows, host_bound, ratio_metric
from benchmarks.gpu.links_part import LAUNCHES
from benchmarks.gpu.neo_peer import NOT_THERE
from benchmarks.gpu.online_prediction import NOTHING_PREDICTED
from benchmarks.gpu.parts import parts_of
from benchmarks.gpu.plots import Bar, bars_of, draw_plots
from benchmarks.gpu.run import run_parts
from benchmarks.gpu.scale import HYBRID
from benchmarks.gpu.tiny_scale import tiny
from benchmarks.gpu.whole_jobs import PEER

from tandem.bench.records import BenchRecord, BenchRow
from tandem.kernels import native
from tandem.probes import kernel_cases, linear_cases


@pytest.mark.slow
@pytest.mark.skipif(not native.available(), reason="a profile needs the compiled kernels")
def test_every_part_finds_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(
        command: Sequence[str], environment: Mapping[str, str], seconds: float, log: Path
    ) -> int:  # in this process: importing torch for each part would take most of the time
        del seconds, log
        monkeypatch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
        assert list(command[1:3]) == ["-m", "benchmarks.gpu.part"]
        return part.main(command[3:])

    # Nothing is measured: pages and copies need not exceed the caches.
    monkeypatch.setattr(kernel_cases, "_POOL_BYTES", 0)
    monkeypatch.setattr(linear_cases, "_CACHE_MULTIPLE", 0)
    parts = parts_of(tiny())
    assert run_parts(parts, tmp_path, Deadline.after(500.0), tiny=True, start=here) == []
    records = {
        each.name: BenchRecord.from_json((tmp_path / f"{each.name}.json").read_text())
        for each in parts
    }
    notes = [note for record in records.values() for note in record.notes]
    assert any("nothing fits" in note for note in notes)  # plans of online cells need more memory
    refused = {note for note in notes if "was not run" in note}
    assert refused <= {NOT_THERE, f"predictions was not run: {NOTHING_PREDICTED}"}
    variants = {name: {row.variant for row in record.rows} for name, record in records.items()}
    assert {HYBRID[0], PEER, f"gpu-only over {PEER}"} <= variants["online-llama-3.1-8b"]
    assert any("attention by" in note for note in records["online-llama-3.1-8b"].notes)
    held_out = [row for row in records["profile"].rows if row.case.startswith("held out: ")]
    assert len(held_out) == 5
    others = records["online-llama-3.1-8b-others"].rows
    assert {*HYBRID[1:], *(f"{name} over gpu-only" for name in HYBRID[1:])} <= {
        row.variant for row in others
    }
    served = [row for row in others if row.unit == "GB/s"]
    assert {row.metric for row in served if row.variant == "ride-along"} >= {
        "link to the device, all copies",
        "link from the device, all copies",
    }
    graphs = [row for row in records["links"].rows if row.metric == "graphs, time to record"]
    assert {row.variant for row in graphs} == {
        name for name, launch in LAUNCHES.items() if launch.graphs == "on"
    }
    (capped,) = {row.case for row in records["online-llama-3.1-8b-kv"].rows}
    assert "390.6 KiB of device memory for KV" in capped
    assert variants["online-qwen3-14b-int4"] >= {"auto", "auto over gpu-only"}
    assert variants["online-qwen3-30b-a3b-int4"] >= {"auto", "auto over gpu-only"}
    assert variants["larger-llama-3.1-8b"] == {"stream", "cpu", "mlp", "auto", "all"}
    larger = records["larger-llama-3.1-8b"].rows
    assert {row.variant for row in larger if row.metric == ratio_metric("simulated")} == {
        "stream", "cpu", "mlp", "auto",
    }  # fmt: skip
    planned = records["planned-llama-3.1-8b"].rows
    assert {row.variant for row in planned} == {"auto", "gpu-only", "auto over gpu-only", "all"}
    ratios = {(row.variant, row.metric) for row in planned if row.metric.endswith("over executed")}
    assert ratios == {
        (policy, ratio_metric(source))
        for policy in ("auto", "gpu-only")
        for source in ("predicted", "simulated")
    }
    assert len([row for row in planned if row.metric.startswith("median error")]) == 2
    for cell in ("planned-llama-3.1-8b", "online-llama-3.1-8b"):
        gains = [row for row in records[cell].rows if row.metric == "bound of the gain"]
        assert "auto over gpu-only" in {row.variant for row in gains}
    assert variants["offline-llama-3.1-8b"] == {"auto", "kvpr", "all"}
    assert variants["offline-llama-3.1-70b-int4"] == {"auto", "all"}
    assert "each way at once" in {row.variant for row in records["links"].rows}
    cases = {row.case.partition(",")[0].partition(" ")[0] for row in records["kernels"].rows}
    assert cases == {"decode", "prefill", "linear", "dequantize", "experts", "sampling"}
    errors = [row for row in records["host"].rows if row.metric.startswith("largest error")]
    assert {row.variant for row in errors} == set(native.supported_isas())
    assert all(row.fraction is not None and row.fraction < 1 for row in errors)
    best = f"tandem {native.choose_isa()}"
    assert {"bandwidth", "rate"} <= {r.metric for r in records["host"].rows if r.variant == best}
    assert {"link", "launch", "signals"} <= {row.case for row in records["links"].rows}
    assert {row.variant for row in records["links"].rows} >= set(LAUNCHES)
    trips = [row.variant for row in records["links"].rows if row.case == "signals"]
    assert [name.partition(",")[0] for name in trips] == ["kernel", "copy to the host"]
    assert all(
        row.value > 0
        for record in records.values()
        for row in record.rows
        if row.metric != GAIN  # nothing may have been gained
    )
    drawn = {path.stem for path in draw_plots(parts, tmp_path)}
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
