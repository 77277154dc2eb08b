"""`python -m benchmarks.gpu.part NAME --json FILE`: measure one part in a process of its own."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import FailedError, UnfinishedError
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.full_scale import full
from benchmarks.gpu.parts import parts_of
from benchmarks.gpu.tiny_scale import tiny

from tandem.bench.machine import describe_machine
from tandem.bench.table import print_record
from tandem.devices.cuda.device import cuda_available
from tandem.devices.host_facts import package_version
from tandem.spec.errors import TandemError

UNFINISHED = 3
"""Exit status of a part that the next call goes on with."""
FAILED = 4
"""Exit status of a part that has found something wrong: the next call looks again, not this one."""
_OTHERS = ("triton", "accelerate", "numpy")


def main(words: Sequence[str] | None = None) -> int:
    """Measure, write the record, print its table.

    Args:
        words: the command line; by default this process's.
    """
    words = sys.argv[1:] if words is None else words
    arguments = _parser().parse_args(words)
    scale = tiny() if arguments.tiny else full()
    if scale.accelerator == "cuda" and not cuda_available():
        print("torch sees no CUDA device; --tiny runs without one, to see that all of it works")
        return 1
    part = next(part for part in parts_of(scale) if part.name == arguments.name)
    try:
        measure = part.load()
    except ImportError as error:  # a machine without a network has what it has
        print(f"{part.name}: cannot be measured here: {error}", file=sys.stderr)
        return 1
    limit = Deadline.after(arguments.seconds)
    command = shlex.join(["python", "-m", "benchmarks.gpu.part", *words])
    found = Findings(f"gpu {part.name}", command, _machine(), arguments.json)
    try:
        measure(scale, limit, found)
    except UnfinishedError as error:
        print(f"{part.name}: {error}", file=sys.stderr)
        return UNFINISHED
    except FailedError as error:
        print(f"{part.name}: {error}", file=sys.stderr)
        return FAILED
    except TandemError as error:
        print(f"{part.name}: {error}", file=sys.stderr)
        return 1
    print_record(found.finish())
    return 0


def _machine() -> dict[str, Any]:
    """This machine, and the versions of what takes part."""
    return {**describe_machine(), **{name: package_version(name) for name in _OTHERS}}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--json", type=Path, required=True, help="the record's file")
    parser.add_argument("--seconds", type=float, default=200.0, help="to end in, if possible")
    parser.add_argument("--tiny", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
