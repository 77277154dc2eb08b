"""What `run_all.sh` measures on a GPU, over one that the host stands in for: the calls that only a
CUDA device has, of probes, drivers and graphs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from benchmarks.gpu import links_part, part
from benchmarks.gpu import scale as scales
from benchmarks.gpu.cells import LargerCell, OnlineCell, PlannedCell
from benchmarks.gpu.links_part import LAUNCHES
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.tiny_scale import tiny
from tests.support import fake_cuda

from tandem.bench.records import BenchRecord
from tandem.engine.building import model_loading
from tandem.engine.sizing.precision_choice import PrecisionChoice
from tandem.kernels import native
from tandem.probes import kernel_cases, linear_cases

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not native.available(), reason="a profile needs the compiled kernels"),
]
_BESIDE_BYTES = 160 << 20  # kernels' scratch, and what graphs are taken to have of a driver's
_DEVICE = torch.device("cpu")
CellT = TypeVar("CellT", OnlineCell, LargerCell, PlannedCell)


def _with_room(cells: Iterable[CellT]) -> tuple[CellT, ...]:
    return tuple(replace(cell, memory_bytes=cell.memory_bytes + _BESIDE_BYTES) for cell in cells)


def stand_in() -> Scale:
    """Tiny sizes, on what is told to be a GPU."""
    sizes = tiny()
    return replace(
        sizes, accelerator="cuda", online=_with_room(sizes.online),
        larger=_with_room(sizes.larger), planned=_with_room(sizes.planned),
        offline=_with_room(sizes.offline),
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of records; parts find each other's in it."""
    made = tmp_path_factory.mktemp("records")
    with pytest.MonkeyPatch.context() as patch:
        fake_cuda.install(patch)
        patch.setenv("XDG_CACHE_HOME", str(made / "cache"))
        patch.setattr(part, "tiny", stand_in)
        patch.setattr(part, "cuda_available", lambda: True)
        patch.setattr(scales, "open_cuda", lambda index: _DEVICE)
        patch.setattr(scales, "compute_capability", lambda device: (9, 0))
        patch.setattr(Scale, "device", property(lambda scale: _DEVICE))
        # the layers' types are a GPU's, though the CPU computes them
        choose = model_loading.choose_precision

        def choose_of_a_gpu(*given: Any, **named: Any) -> PrecisionChoice:
            return choose(*given, **{**named, "host_maths": False})

        patch.setattr(model_loading, "choose_precision", choose_of_a_gpu)
        # Nothing is measured: pages and copies need not exceed the caches, nor samples be long.
        patch.setattr(kernel_cases, "_POOL_BYTES", 0)
        patch.setattr(linear_cases, "_CACHE_MULTIPLE", 0)
        patch.setattr(links_part, "_LAUNCH_TOKENS", 8)
        yield made


def _measured(name: str, folder: Path, left_out: tuple[str, ...] = ()) -> BenchRecord:
    """All cases but those of these names."""
    path = folder / f"{name}.json"
    assert part.main([name, "--json", str(path), "--tiny", "--seconds", "120"]) == 0
    record = BenchRecord.from_json(path.read_text())
    assert record.rows
    missing = [note for note in record.notes if "was not run" in note or "failed" in note]
    assert [note.partition(" was not run: ")[0] for note in missing] == list(left_out)
    return record


@pytest.fixture(scope="module")
def profile(folder: Path) -> BenchRecord:
    """What a profile tells is what plans are made of."""
    return _measured("profile", folder)


def test_links_are_measured_with_streams_and_every_launch(folder: Path) -> None:
    in_graph = "one graph beside the host"  # which the stand-in does not have
    record = _measured("links", folder, left_out=(f"launches, {in_graph}",))
    trips = [row.variant for row in record.rows if row.case == "signals"]
    assert len(trips) == len({*trips}) == 4
    assert {row.variant for row in record.rows} >= set(LAUNCHES) - {in_graph}
    assert in_graph not in {row.variant for row in record.rows}
    launched = {(row.variant, row.metric): row.value for row in record.rows if row.case == "graphs"}
    assert launched["one graph", "launched as one graph"] > 0
    assert launched["a graph between attentions", "launched as parts of layers as graphs"] > 0


def test_plans_from_a_profile_of_the_device_are_executed_on_it(
    profile: BenchRecord, folder: Path
) -> None:
    assert any(row.metric == "profile over measured" for row in profile.rows)
    for name in ("planned-llama-3.1-8b", "offline-llama-3.1-8b"):
        rows = _measured(name, folder).rows
        assert any(row.metric == "median error, predicted" for row in rows), name


@pytest.mark.usefixtures("profile")
def test_online_cells_are_of_graphs_and_of_both_engines(folder: Path) -> None:
    rows = _measured("online-llama-3.1-8b-kv", folder).rows
    launched = {row.variant: row.value for row in rows if row.metric == "launched as one graph"}
    assert launched.keys() == {"gpu-only", "auto"}
    assert all(launched.values())
    assert any(row.metric == "graphs, memory of the ledger's" for row in rows)
