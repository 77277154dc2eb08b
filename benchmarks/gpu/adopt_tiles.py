"""`python -m benchmarks.gpu.adopt_tiles FILE`: kernels take the tiles that `tiles` found best."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from tandem.kernels.tiles import TileSettings

FOLDER = Path(__file__).resolve().parents[2] / "src" / "tandem" / "assets" / "tiles"


def main(words: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    """Write `assets/tiles/CAPABILITY.json`, or remove it where the usual tiles are best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="tiles.best.json of a record's folder")
    told = json.loads(parser.parse_args(words).file.read_text(encoding="utf-8"))
    capability, tiles = told["capability"], told["tiles"]
    TileSettings.of(tiles)  # refuses what no kernel can be compiled with
    major, _, minor = capability.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        print(f"{capability}: not measured on a GPU; nothing is changed")
        return 1
    target = folder / f"{capability}.json"
    if not tiles:
        target.unlink(missing_ok=True)
        print(f"compute capability {capability}: the usual tiles")
        return 0
    target.write_text(json.dumps({"tiles": tiles}, indent=2) + "\n", encoding="utf-8")
    print(f"{target}: {tiles}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
