"""What is made of the times of kernels that are cut otherwise."""

import json
from pathlib import Path

import pytest
from benchmarks.gpu.adopt_tiles import main
from benchmarks.gpu.tiles_part import (
    KNOBS,
    METRIC,
    TOGETHER,
    best_values,
    confirmed_values,
    least_copy_bytes,
)

from tandem.bench.records import BenchRow
from tandem.kernels.tiles import TileSettings


def timed(case: str, variant: str, ratio: float) -> BenchRow:
    return BenchRow(case, variant, METRIC, ratio, "ratio", 1.0)


ROWS = (
    timed("decode, a", "decode_stages=1", 0.9),
    timed("decode, b", "decode_stages=1", 0.9),
    timed("decode, a", "decode_stages=3", 0.5),
    timed("decode, b", "decode_stages=3", 1.9),  # 0.97 in the mean
    timed("decode, a", "decode_warps=8", 0.5),  # did not run in the other case
    timed("decode, b", "decode_warps=2", 1.01),
    timed("decode, a", "decode_warps=2", 1.01),
    timed("product, a", "product_stages=4", 0.99),  # not worth it
    timed("product, a", "product_warps=8", 0.8),
)


def test_the_best_value_of_each_size_over_all_of_its_cases() -> None:
    assert best_values(ROWS) == {"decode_stages": 1, "product_warps": 8}


def test_only_what_is_faster_together_is_taken() -> None:
    told = (timed("decode, a", TOGETHER, 0.7), timed("decode, b", TOGETHER, 1.3))
    assert confirmed_values((*ROWS, *told)) == {"decode_stages": 1}
    assert confirmed_values((*ROWS, *told, timed("product, a", TOGETHER, 0.8))) == {
        "decode_stages": 1,
        "product_warps": 8,
    }
    assert confirmed_values(ROWS) == {}


def test_every_size_that_is_tried_is_one_of_the_kernels() -> None:
    for knobs in KNOBS.values():
        for knob, values in knobs.items():
            for value in values:
                assert TileSettings.of({knob: value}) != TileSettings()


def rate(size: int, engines: float, kernel: float) -> tuple[BenchRow, BenchRow]:
    case = f"scattered blocks of {size} bytes to the host"
    return (
        BenchRow(case, "copy engines", "rate", engines, "GB/s"),
        BenchRow(case, "a kernel", "rate", kernel, "GB/s"),
    )


def test_where_copy_engines_begin_to_pay() -> None:
    rows = (*rate(1024, 1, 10), *rate(2048, 5, 10), *rate(4096, 9.5, 10), *rate(8192, 20, 10))
    assert least_copy_bytes(rows, (1024, 2048, 4096, 8192)) == 4096
    assert least_copy_bytes(rows, (1024, 2048)) is None
    assert least_copy_bytes(rows, (1024, 2048, 4096, 8192, 1 << 14)) is None  # not measured


@pytest.mark.parametrize(
    ("told", "status", "kept"),
    [
        ({"capability": "9.0", "tiles": {"prefill_rows": 128}}, 0, {"prefill_rows": 128}),
        ({"capability": "9.0", "tiles": {}}, 0, None),
        ({"capability": "interpreter", "tiles": {"prefill_rows": 128}}, 1, {"prefill_rows": 32}),
    ],
)
def test_what_was_found_is_put_where_kernels_look(
    told: dict[str, object], status: int, kept: dict[str, int] | None, tmp_path: Path
) -> None:
    (tmp_path / "9.0.json").write_text(json.dumps({"tiles": {"prefill_rows": 32}}))
    (tmp_path / "found.json").write_text(json.dumps(told))
    assert main([str(tmp_path / "found.json")], tmp_path) == status
    target = tmp_path / "9.0.json"
    assert (json.loads(target.read_text())["tiles"] if target.exists() else None) == kept


def test_what_no_kernel_can_have_is_not_put_there(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"capability": "9.0", "tiles": {"prefill_rows": 48}}))
    with pytest.raises(ValueError, match="power of two"):
        main([str(path)], tmp_path)
    assert not (tmp_path / "9.0.json").exists()
