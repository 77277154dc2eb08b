"""The memory suite: which cells there are, what counts as a miss, and one cell for real."""

import pytest

from tandem.bench.memory import chosen_cells, missed
from tandem.bench.memory_cell import measure_cell
from tandem.bench.memory_cells import MemoryCell, all_cells
from tandem.bench.records import BenchRow
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError, TandemError


def test_there_are_thirty_cells_of_different_names_and_valid_options() -> None:
    cells = all_cells()
    assert len({str(cell) for cell in cells}) == len(cells) >= 30
    for cell in cells:
        EngineConfig("m", **cell.options)


def test_cells_are_chosen_by_name() -> None:
    chosen = chosen_cells("host_layers stream")
    assert chosen
    assert all(cell.options["host_layers"] == "stream" for cell in chosen)
    with pytest.raises(ConfigError, match="no cell of the memory suite contains 'nothing'"):
        chosen_cells("nothing")


def test_peaks_above_or_far_below_the_prediction_are_misses() -> None:
    peaks = (94.0, 95.5, 100.0, 100.5)
    rows = [BenchRow("case", "process", "peak memory", peak, "MiB", 100.0) for peak in peaks]
    assert [row.value for row in missed(rows)] == [94.0, 100.5]


def test_a_cell_is_measured_in_a_process_of_its_own() -> None:
    (cell,) = chosen_cells("demo, max_num_batched_tokens 256, accelerator none")
    figures = measure_cell(cell)
    (process,) = figures.places
    assert process.place == "process"
    assert 0.95 * process.predicted_bytes < process.peak_bytes <= process.predicted_bytes
    rows = {row.label: row for row in figures.labels}
    assert rows["kv pool"].actual_bytes == rows["kv pool"].predicted_bytes


def test_a_cell_that_cannot_be_built_says_why() -> None:
    cell = MemoryCell(None, {"accelerator": "none", "cpu_memory": "1MiB"})
    with pytest.raises(TandemError, match="memory too small"):
        measure_cell(cell)
