"""`benchmarks/gpu/run_all.sh`: everything that is measured on a GPU.

One call takes less than nine minutes: it measures the parts that have no record yet, one after the
other, each in a process of its own, and leaves what does not fit in the time to the next call.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import begun_cases, ended_cases, partial_path
from benchmarks.gpu.full_scale import full
from benchmarks.gpu.part import FAILED, UNFINISHED
from benchmarks.gpu.parts import Part, parts_of
from benchmarks.gpu.plots import draw_plots
from benchmarks.gpu.summary import failure_path, left_lines, summary_lines
from benchmarks.gpu.tiny_scale import tiny

from tandem.bench.machine import git_commit
from tandem.bench.records import BenchRecord
from tandem.devices.cuda.device import cuda_available
from tandem.devices.host_facts import nvidia_gpus
from tandem.kernels import native

ROOT = Path(__file__).resolve().parents[2]
_RESULTS = ROOT / "benchmarks" / "results"
_CALL_S = 520.0
_RESERVE_S = 10.0  # for the summary
_GRACE = 1.1  # a part is told of less time than it is given
_SUMMARY = "summary.md"
_LAST_LINES = 25
_ENDS = {None: "ended for want of time", FAILED: "failed: something does not hold, as it tells"}
_MOST_BREAKS = 2  # of a part's processes, one after the other, in which no case has ended
_BUILD = ROOT / "scripts" / "gpu_check.py"

Start = Callable[[Sequence[str], Mapping[str, str], float, Path], int | None]


def main() -> int:
    """Measure what is missing, and say what there is."""
    arguments = _parser().parse_args()
    scale = tiny() if arguments.tiny else full()
    if scale.accelerator == "cuda" and not cuda_available():
        print("torch sees no CUDA device; --tiny runs without one, to see that all of it works")
        return 1
    parts = [part for part in parts_of(scale) if arguments.only in part.name]
    if not parts:
        known = ", ".join(part.name for part in parts_of(scale))
        _tell(f"--only {arguments.only}: no part's name contains it; there are: {known}")
        return 1
    folder = arguments.out or default_folder(tiny=arguments.tiny)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _tell(f"--out {folder}: {error.strerror}; name a folder, or one that can be made")
        return 1
    command = shlex.join(["run_all.sh", *sys.argv[1:]])

    def summarize() -> str:
        text = "\n".join(summary_lines(parts, folder, command))
        (folder / _SUMMARY).write_text(text + "\n", encoding="utf-8")
        return text

    limit = Deadline.after(arguments.seconds)
    if scale.accelerator == "cuda" and not native.available():
        _build_native(folder, limit)
    failed = run_parts(parts, folder, limit, tiny=arguments.tiny, ended=summarize)
    print(summarize())
    _tell("\n".join(left_lines(parts, folder)))
    try:
        drawn = draw_plots(parts, folder)
    except ImportError:
        _tell("no pictures: matplotlib is not installed")
    else:
        _tell(f"{len(drawn)} pictures in {folder}")
    return 1 if failed else 0


def default_folder(*, tiny: bool) -> Path:
    """Below the results, by the name of the device; figures of a stand-in are no results."""
    if tiny:
        return ROOT / "build" / "gpu-tiny"
    # by the driver's word, not torch's: a context in this process would take the device's memory
    (name, *_) = nvidia_gpus() or ("gpu",)
    return _RESULTS / re.sub(r"[^a-z0-9]+", "-", name.partition(",")[0].lower()).strip("-")


def run_parts(
    parts: Sequence[Part],
    folder: Path,
    limit: Deadline,
    *,
    tiny: bool,
    start: Start | None = None,
    ended: Callable[[], object] | None = None,
) -> list[str]:
    """Measure those without a record, as far as time goes, those that failed in a call before
    behind the others; names of those that failed.

    Args:
        start: runs a command in an environment for so many seconds at most, what it prints going to
            a file; its exit status, None if it was ended.
        ended: called when a part has ended: of a call that is cut off, all but one is told.
    """
    start = start or run_for
    cache = folder / "cache"
    environment = {
        **os.environ, "XDG_CACHE_HOME": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")
    }  # fmt: skip
    failed: list[str] = []
    for part in sorted(parts, key=lambda part: failure_path(folder, part).exists()):
        path, failure = folder / f"{part.name}.json", failure_path(folder, part)
        if path.exists():
            lacks = part.lacks(environment)
            if lacks is None:
                _tell(_present(path))
                continue
            _tell(f"{part.name}: its record is there, but is not enough: {lacks}")
        why = _run_part(part, folder, limit, environment, start, tiny=tiny)
        if why is None:
            failure.unlink(missing_ok=True)
        else:
            failure.write_text(why + "\n", encoding="utf-8")
            failed.append(part.name)
        if ended is not None:
            ended()
    return failed


def _run_part(
    part: Part,
    folder: Path,
    limit: Deadline,
    environment: Mapping[str, str],
    start: Start,
    *,
    tiny: bool,
) -> str | None:
    """Once, and again as long as a case of it ends its process but others have come to their end,
    or have not been tried; why it failed, None if it did not.
    """
    path, log = folder / f"{part.name}.json", folder / "logs" / f"{part.name}.log"
    why, breaks = None, 0
    while True:
        seconds = min(part.limit_s, limit.left_s - _RESERVE_S)
        if seconds < part.least_s:
            _tell(f"{part.name}: left to the next call")
            return why
        command = [
            sys.executable, "-m", "benchmarks.gpu.part", part.name, "--json", str(path),
            "--seconds", f"{seconds / _GRACE:.0f}", *(["--tiny"] if tiny else []),
        ]  # fmt: skip
        _tell(f"{part.name}: at most {seconds:.0f} s")
        ended, begun = ended_cases(path), begun_cases(path)
        status = start(command, environment, seconds, log)
        if status == 0:
            return None
        if status == UNFINISHED:
            _tell(f"{part.name}: goes on in the next call")
            return None
        why = _ENDS.get(status, f"failed with status {status}")
        kept = ", what it found is kept" if partial_path(path).exists() else ""
        _tell(f"{part.name}: {why}{kept}; the end of {log}:\n{_end_of(log)}")
        breaks = 0 if ended_cases(path) > ended else breaks + 1
        if status in (None, FAILED) or breaks == _MOST_BREAKS or begun_cases(path) == begun:
            return why


def _build_native(folder: Path, limit: Deadline) -> None:
    """A machine that was given the records of another's calls has none: compiled files are not
    kept with them. Without it parts of the host fail, and others say that it is slow.
    """
    log = folder / "logs" / "build.log"
    _tell("the CPU kernels are not there for this Python: compiling them")
    command = [sys.executable, "-u", str(_BUILD), "--build-only"]
    if run_for(command, os.environ, limit.left_s - _RESERVE_S, log) != 0:
        _tell(f"the CPU kernels could not be compiled; the end of {log}:\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open(encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, _LAST_LINES))


def run_for(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, log: Path
) -> int | None:
    """Run it in a process group of its own, which is ended when time is out."""
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as told:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
        )
    try:
        return process.wait(timeout=seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise


def _present(path: Path) -> str:
    measured = BenchRecord.from_json(path.read_text(encoding="utf-8")).machine.get("git_commit")
    here = git_commit(ROOT)
    other = f", of commit {measured}; remove it to measure again" if measured != here else ""
    return f"{path.stem}: there already{other}"


def _tell(text: str) -> None:
    """Progress, on standard error, so that it mixes with no result."""
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run_all.sh", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="parts whose names contain it")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="default: benchmarks/results/ and the GPU's name"
    )
    parser.add_argument(
        "--seconds", type=float, default=_CALL_S, help=f"of this call; default: {_CALL_S:.0f}"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="tiny models on the emulated accelerator, no figures"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
