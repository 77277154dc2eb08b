"""Writes to a disk until it is full, then to a larger one. Run in a mount namespace of its own.

Usage: python -m tests.fakes.full_disk CASE DISK FOLDER. DISK is a small tmpfs, FOLDER has room;
prints what happened as a JSON object.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.fakes.job_process import run_job

from tandem.jobs.storage_error import StorageError
from tandem.models.weight_spool import WeightSpool
from tandem.spec.errors import ConfigError

_LARGER = "16m"


def run_twice(disk: Path, folder: Path, *, journal_only: bool) -> dict[str, object]:
    """A job until the disk is full, again as it is, and again with room.

    Args:
        journal_only: the output lies where there is room.
    """
    output = disk / "out.jsonl"
    if journal_only:
        output.symlink_to(folder / "out.jsonl")
    names = str(folder / "in.jsonl"), str(output), str(folder / "engine.log")
    errors = [_error_of(*names), _error_of(*names)]
    kept = output.read_bytes()
    (folder / "engine.log").unlink(missing_ok=True)
    subprocess.run(["mount", "-o", f"remount,size={_LARGER}", disk], check=True)
    run_job(*names, 1)
    (folder / "results").write_bytes(output.read_bytes())
    return {"errors": errors, "kept": kept.decode()}


def _error_of(input_file: str, output_file: str, engine_log: str) -> str:
    try:
        run_job(input_file, output_file, engine_log, 1)
    except StorageError as error:
        return error.message
    return ""


def spool(disk: Path) -> dict[str, object]:
    """Weights for which there was room when the spool was opened, and no longer is."""
    import torch

    layer = torch.zeros(96 << 10, dtype=torch.uint8)
    made = WeightSpool((disk,), layer.nbytes, 2)
    try:
        made.append(layer)
        (disk / "another").write_bytes(bytes(110 << 10))
        made.append(layer)
    except ConfigError as error:
        return {"error": error.message, "param": error.param}
    finally:
        made.close()
        (disk / "another").unlink(missing_ok=True)
        assert not list(disk.iterdir())
        # all of it is free again
        (disk / "all").write_bytes(bytes(250 << 10))
    return {}


def main(case: str, disk: Path, folder: Path) -> None:
    """Run one case."""
    if case == "spool":
        print(json.dumps(spool(disk)))
    else:
        print(json.dumps(run_twice(disk, folder, journal_only=case == "journal")))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
