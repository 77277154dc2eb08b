"""How Triton's kernels are cut on a GPU, by its compute capability: what was measured, or a guess.

`assets/tiles/CAPABILITY.json` names what is not as in `TileSettings`; part `tiles` of
`benchmarks/gpu/run_all.sh` measures it, and `python -m benchmarks.gpu.adopt_tiles` puts it there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

_FOLDER = "tiles"
_POWERS = ("prefill_rows", "key_bytes", "warps")
_LEAST_DOT = 16  # rows of the smallest product on matrix units


@dataclass(frozen=True, slots=True)
class TileSettings:
    """Sizes that a kernel is compiled with; the usual ones were chosen by registers and shared
    memory, not by time.

    Attributes:
        prefill_rows: query tokens times heads of a group, in a tile of a prompt.
        decode_key_bytes, prefill_key_bytes: of a tile of keys, in the queries' type.
        decode_stages, prefill_stages: of keys and values on their way into shared memory.
        product_stages: of codes on their way into registers, where products are of float32 or have
            no matrix units; others are cut by `product_tiles.py`.
        decode_warps, prefill_warps, product_warps: of a program.
        least_copy_bytes: of a launch, on average, for copy engines to be worth it: 512 KiB take
            some 10 us at 50 GB/s, while Python needs about as long to launch one.

    Raises:
        ValueError: sizes that no kernel can be compiled with.
    """

    prefill_rows: int = 64
    decode_key_bytes: int = 16 << 10
    decode_stages: int = 2
    decode_warps: int = 4
    prefill_key_bytes: int = 16 << 10
    prefill_stages: int = 2
    prefill_warps: int = 4
    product_stages: int = 3
    product_warps: int = 4
    least_copy_bytes: int = 512 << 10

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field.name} must be a positive integer, not {value!r}")
            if field.name.endswith(_POWERS) and value & (value - 1):
                raise ValueError(f"{field.name} must be a power of two, not {value}")
        if self.prefill_rows < _LEAST_DOT:
            raise ValueError(f"tiles have {_LEAST_DOT} rows at least, not {self.prefill_rows}")

    @staticmethod
    def of(values: Mapping[str, Any]) -> "TileSettings":
        """With these in place of the usual ones.

        Raises:
            ValueError: names that there are not, or sizes that cannot be.
        """
        unknown = values.keys() - {field.name for field in fields(TileSettings)}
        if unknown:
            raise ValueError(f"no tiles have {', '.join(sorted(unknown))}")
        return TileSettings(**values)


USUAL_TILES = TileSettings()


@cache
def tiles_for(capability: tuple[int, int]) -> TileSettings:
    """Those of a compute capability; the usual ones where none were measured."""
    name = "{}.{}.json".format(*capability)
    file = files("tandem") / "assets" / _FOLDER / name
    if not file.is_file():
        return USUAL_TILES
    return TileSettings.of(json.loads(file.read_text(encoding="utf-8"))["tiles"])
