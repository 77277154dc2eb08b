"""How kernels are cut, by what a file says of a GPU's compute capability."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.kernels import tiles
from tandem.kernels.tiles import USUAL_TILES, TileSettings, tiles_for
from tandem.kernels.triton_plan import HeadShape, decode_shape, prefill_shape
from tandem.kernels.triton_support import TritonDevice

HEADS = HeadShape(kv_heads=8, group=4, row_elements=128, element_bytes=2)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"prefill_rows": 48}, "power of two"),
        ({"decode_key_bytes": 24 << 10}, "power of two"),
        ({"prefill_rows": 8}, "16 rows"),
        ({"decode_stages": 0}, "positive integer"),
        ({"decode_stages": True}, "positive integer"),
        ({"prefill_row": 64}, "prefill_row"),
    ],
)
def test_what_no_kernel_can_have_is_refused(values: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        TileSettings.of(values)


def test_a_capability_has_what_its_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "assets" / "tiles"
    folder.mkdir(parents=True)
    (folder / "8.9.json").write_text(json.dumps({"tiles": {"prefill_rows": 128}}))
    monkeypatch.setattr(tiles, "files", lambda package: tmp_path)
    tiles_for.cache_clear()
    try:
        assert tiles_for((8, 9)) == replace(USUAL_TILES, prefill_rows=128)
        assert tiles_for((9, 0)) == USUAL_TILES
    finally:
        tiles_for.cache_clear()


def test_every_file_in_the_package_can_be_read() -> None:
    folder = Path(tiles.__file__).parents[1] / "assets" / "tiles"
    for file in folder.glob("*.json"):
        major, minor = map(int, file.stem.split("."))
        assert tiles_for((major, minor)) != USUAL_TILES


def test_shapes_follow_the_tiles() -> None:
    unit = TritonDevice(100, has_dot=True)
    usual = prefill_shape(HEADS)
    assert (usual.tokens, usual.rows, usual.keys, usual.stages, usual.warps) == (16, 64, 64, 2, 4)
    other = TileSettings(
        prefill_rows=128, prefill_key_bytes=32 << 10, prefill_stages=3, prefill_warps=8,
        decode_key_bytes=8 << 10, decode_stages=1, decode_warps=2,
    )  # fmt: skip
    cut = prefill_shape(HEADS, other)
    assert (cut.tokens, cut.rows, cut.keys, cut.stages, cut.warps) == (32, 128, 128, 3, 8)
    decode = decode_shape(HEADS, replace(unit, tiles=other))
    assert (decode.keys, decode.stages, decode.warps) == (32, 1, 2)
    short = HeadShape(kv_heads=8, group=4, row_elements=16, element_bytes=2)
    assert decode_shape(short, unit).keys == 64
