"""`python -m benchmarks.peers.run`: our engine on the host alone beside its peers.

Every engine has a process of its own with the same cores; they take turns.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.case_run import CaseRun, IdleTime
from benchmarks.peers.engines import Engine, all_engines
from benchmarks.peers.line_protocol import Worker
from benchmarks.peers.models import PeerModels

from tandem.bench.host_case import PREFILL_512, HostCase, decode_cases
from tandem.bench.host_model import LLAMA_246M
from tandem.bench.machine import describe_machine
from tandem.bench.records import BenchRecord, BenchRow, check_writable, write_record
from tandem.bench.table import print_record
from tandem.models.config import read_model_spec
from tandem.spec.dtype import DType

_PLACE = Path("build/peers")
_NEW_TOKENS = 64
# Claims rest on seven pairs or more.
_ROUNDS = 7


def main() -> None:
    """Read the command line, measure, print the table, write the record."""
    arguments = _parser().parse_args()
    if arguments.json is not None:
        check_writable(arguments.json)
    machine = describe_machine()
    rows = measure(_chosen(arguments.engine), arguments.case or list(_cases()), arguments.rounds)
    command = shlex.join(["python", "-m", "benchmarks.peers.run", *sys.argv[1:]])
    record = BenchRecord("peers", command, machine, tuple(rows))
    print_record(record)
    if arguments.json is not None:
        write_record(record, arguments.json)


def measure(engines: Sequence[Engine], cases: Sequence[str], rounds: int) -> list[BenchRow]:
    """Start all engines, run the cases, and add what the engines took meanwhile."""
    models = PeerModels(_PLACE / "models", _PLACE / ".venv/bin/python", LLAMA_246M)
    spec, label = read_model_spec(models.config(DType.FLOAT16)), LLAMA_246M.name
    with ExitStack() as stack:
        workers = {engine.name: _started(engine, models, stack) for engine in engines}
        idle = IdleTime(workers)
        rows: list[BenchRow] = []
        for name in cases:
            _report(f"{label}, {_cases()[name]}: {rounds} rounds")
            rows += CaseRun(_cases()[name], label, spec, engines, workers, idle).rows(rounds)
        for name, worker in workers.items():
            peak = worker.peak_rss_bytes() / 1e6
            rows.append(BenchRow(f"{label}, all cases", name, "peak resident set", peak, "MB"))
        for name, cores in idle.cores().items():
            rows.append(BenchRow(f"{label}, all cases", name, "load while idle", cores, "cores"))
        return rows


def _started(engine: Engine, models: PeerModels, stack: ExitStack) -> Worker:
    _report(f"loading {engine.name}")
    worker = engine.start(models)
    stack.callback(worker.close)
    worker.wait_until_loaded()
    return worker


def _cases() -> dict[str, HostCase]:
    decode = {f"batch-{case.batch}": case for case in decode_cases((1, 8, 32), _NEW_TOKENS)}
    return {"prefill": PREFILL_512, **decode}


def _chosen(names: Sequence[str] | None) -> list[Engine]:
    return [engine for engine in all_engines() if not names or engine.name in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the record to this file")
    parser.add_argument("--case", action="append", choices=list(_cases()), help="default: all")
    names = [engine.name for engine in all_engines()]
    parser.add_argument("--engine", action="append", choices=names, help="default: all")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"default: {_ROUNDS}")
    return parser


def _report(what: str) -> None:
    """Progress, on standard error, so that it mixes with no result."""
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
