"""What an earlier part found of the GPU alone, and what is left of all parts."""

from pathlib import Path

import pytest
from benchmarks.gpu.cases import UnfinishedError
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.full_scale import full
from benchmarks.gpu.gain import BOUND
from benchmarks.gpu.kept import KeptAlone
from benchmarks.gpu.parts import Part, parts_of
from benchmarks.gpu.summary import failure_path, left_lines

from tandem.bench.records import BenchRow


def throughput(case: str, variant: str, value: float) -> BenchRow:
    return BenchRow(case, variant, "throughput", value, "tokens/s")


def write(path: Path, *rows: BenchRow) -> None:
    found = Findings("gpu online", "a command", {}, path)
    found.add(*rows)
    found.finish()


def test_the_median_of_the_gpu_alone_and_the_bound_of_the_gain(tmp_path: Path) -> None:
    path = tmp_path / "online-a.json"
    alone = [throughput("a", f"gpu-only, beside {n}", n) for n in (10.0, 30.0, 20.0)]
    others = (throughput("a", "auto", 90.0), throughput("b", "gpu-only, beside auto", 1.0))
    write(path, *alone, *others)
    assert KeptAlone.of(path, "a") == KeptAlone(20.0, None)
    write(path, *alone, BenchRow("a", "auto over gpu-only", BOUND, 1.4, "ratio"))
    assert KeptAlone.of(path, "a") == KeptAlone(20.0, 1.4)


def test_what_is_not_there_yet_is_left_to_another_call(tmp_path: Path) -> None:
    path = tmp_path / "online-a.json"
    with pytest.raises(UnfinishedError, match="online-a comes first"):
        KeptAlone.of(path, "a")
    write(path, throughput("b", "gpu-only, beside auto", 1.0))
    with pytest.raises(UnfinishedError, match="no figures"):
        KeptAlone.of(path, "a")


def test_what_is_left_is_told_with_how_far_it_is(tmp_path: Path) -> None:
    done, begun, failed = parts = [Part(name, 100.0, 10.0, lambda: _nothing) for name in "abc"]
    write(tmp_path / f"{done.name}.json")
    found = Findings("gpu b", "a command", {}, tmp_path / f"{begun.name}.json")
    for case in ("x", "y"):
        found.begin(case)
        found.end(case)
    failure_path(tmp_path, failed).write_text("failed with status 1\n")
    assert left_lines(parts, tmp_path) == [
        "left: 2 of 3 parts, 200 s by their limits:",
        "  b: at most 100 s, 2 cases have ended",
        "  c: at most 100 s, failed with status 1",
    ]
    assert left_lines(parts[:1], tmp_path) == ["nothing is left"]


def test_what_has_a_target_comes_before_what_has_none_and_after_what_it_needs() -> None:
    names = [part.name for part in parts_of(full())]
    first_other = min(names.index(name) for name in names if name.endswith("-others"))
    targets = [n for n in names if n.startswith("online") and not n.endswith("-others")]
    mixtures = {f"online-{cell.name}" for cell in full().mixtures}
    assert all(names.index(name) < first_other for name in targets if name not in mixtures)
    assert all(name.removesuffix("-others") in names for name in names)


def _nothing(*_: object) -> None:
    """Never called."""
