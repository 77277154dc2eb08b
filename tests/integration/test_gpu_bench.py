"""What `run_all.sh` measures on a GPU, at tiny sizes on the emulated accelerator."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from benchmarks.gpu import part
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.links_part import LAUNCHES
from benchmarks.gpu.online_part import PEER
from benchmarks.gpu.parts import parts_of
from benchmarks.gpu.plots import Bar, bars_of, draw_plots
from benchmarks.gpu.run import run_parts
from benchmarks.gpu.scale import HYBRID, tiny

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
    assert not [note for note in notes if "was not run" in note or "nothing fits" in note]
    variants = {name: {row.variant for row in record.rows} for name, record in records.items()}
    assert {*HYBRID, PEER, f"gpu-only over {PEER}"} <= variants["online-llama-3.1-8b"]
    assert variants["online-qwen3-14b-int4"] >= {"auto", "auto over gpu-only"}
    assert variants["online-qwen3-30b-a3b-int4"] >= {"auto", "auto over gpu-only"}
    assert variants["larger-llama-3.1-8b"] == {"stream", "cpu", "mlp", "auto"}
    assert variants["planned-llama-3.1-8b"] == {"auto", "gpu-only"}
    assert variants["offline-llama-3.1-8b"] == {"auto", "kvpr"}
    cases = {row.case.partition(",")[0].partition(" ")[0] for row in records["kernels"].rows}
    assert cases == {"decode", "prefill", "linear", "dequantize", "experts"}
    errors = [row for row in records["host"].rows if row.metric.startswith("largest error")]
    assert {row.variant for row in errors} == set(native.supported_isas())
    assert all(row.fraction is not None and row.fraction < 1 for row in errors)
    best = f"tandem {native.choose_isa()}"
    assert {"bandwidth", "rate"} <= {r.metric for r in records["host"].rows if r.variant == best}
    assert {"link", "launch", "signals"} <= {row.case for row in records["links"].rows}
    assert {row.variant for row in records["links"].rows} >= set(LAUNCHES)
    trips = [row.variant for row in records["links"].rows if row.case == "signals"]
    assert [name.partition(",")[0] for name in trips] == ["kernel", "copy to the host"]
    assert all(row.value > 0 for record in records.values() for row in record.rows)
    drawn = {path.stem for path in draw_plots(parts, tmp_path)}
    assert drawn == {
        name
        for name, record in records.items()
        if any(row.bound is not None for row in record.rows)
    }
    assert {"links", "kernels", "online-llama-3.1-8b"} <= drawn


def test_a_bar_is_a_figure_over_its_bound() -> None:
    rows = [
        BenchRow("link", "ours", "rate", 3.0, "GB/s", 4.0, (2.0, 5.0)),
        BenchRow("launch", "ours", "time", 3.0, "us"),
    ]
    assert list(bars_of(rows)) == [Bar("link: ours, rate", 0.75, 0.5, 1.25)]
