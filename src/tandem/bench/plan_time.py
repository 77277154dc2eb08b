"""`tandem bench plan`: how long `tandem plan` takes, to the plan and to the end, on the clock and
of processors, which a busy machine changes less.

Each question is a process of its own, as on a command line, start-up included. The plan stands as
soon as it is printed; larger machines, rejected plans and the command that runs it follow.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.records import BenchRow, row_of_samples

SUITE = "plan"
BOUND_S = 1.0
_PIECE_BYTES = 1 << 16
_USER_TIME = 11
"""After the name in `/proc/PID/stat`; the system's follows (`proc(5)`)."""


@dataclass(frozen=True, slots=True)
class PlanTimeBench:
    """What to ask.

    Attributes:
        questions: arguments of `tandem plan`, each by a name.
        rounds: of all questions, one after the other.
    """

    questions: tuple[tuple[str, str], ...]
    rounds: int = 3


FULL = PlanTimeBench(
    (
        ("70B, RTX 4090", "llama-3.1-70b --accelerator rtx4090 --host server-genoa"),
        ("8B, RTX 4090", "llama-3.1-8b --accelerator rtx4090 --host desktop-ddr5"),
        ("8B, A10G", "llama-3.1-8b --accelerator a10g --host g5.4xlarge"),
        ("8B, T4", "llama-3.1-8b --accelerator t4 --host g4dn.4xlarge --dtype float16"),
        ("8B, A4000", "llama-3.1-8b --accelerator a4000 --host desktop-ddr5 --dtype float16"),
        ("OPT-6.7B, T4", "opt-6.7b --accelerator t4 --host g4dn.4xlarge"),
        ("Qwen3-30B-A3B, RTX 4090", "qwen3-30b-a3b --accelerator rtx4090 --host desktop-ddr5"),
        ("OPT-13B, L4", "opt-13b --accelerator l4 --host g6.4xlarge --dtype float16"),
        (
            "OPT-13B, A4000, a batch job",
            "opt-13b --accelerator a4000 --host desktop-ddr5 --offline --requests 64",
        ),
    )
)
QUICK = PlanTimeBench(FULL.questions[:1], rounds=2)


@dataclass(frozen=True, slots=True)
class PlanTime:
    """Of one process.

    Attributes:
        plan_s, end_s: on the clock until the plan was there, and until the end.
        plan_processor_s: of processors, its own until the plan was there. processor_s: its own and
            its children's until the end.
    """

    plan_s: float
    plan_processor_s: float
    end_s: float
    processor_s: float


def run_plan_time(bench: PlanTimeBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """Rows of every question; before the first round each is asked once, which counts for nothing:
    modules are compiled then.

    Raises:
        RuntimeError: a question was refused.
    """
    times: dict[str, list[PlanTime]] = {name: [] for name, _ in bench.questions}
    for turn in range(bench.rounds + 1):
        for name, question in bench.questions:
            report(f"{name}: {turn} of {bench.rounds}")
            found = time_plan(question.split())
            times[name] += [found] if turn else []
    return tuple(row for name, found in times.items() for row in _rows(name, found))


def time_plan(arguments: Sequence[str]) -> PlanTime:
    """Ask `tandem plan`, in a process of its own.

    Raises:
        RuntimeError: it was refused; says why.
    """
    # as where nobody forbids it: else all modules would be compiled in every process
    given = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "tandem", "plan", *arguments]
    begin_s = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=given
    ) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        plan = os.read(ran.stdout.fileno(), _PIECE_BYTES)
        plan_s = time.perf_counter() - begin_s
        plan_processor_s = _processor_s(ran.pid)
        while os.read(ran.stdout.fileno(), _PIECE_BYTES):
            pass
        why = ran.stderr.read()
        _, status, used = os.wait4(ran.pid, 0)
        end_s = time.perf_counter() - begin_s
        ran.returncode = os.waitstatus_to_exitcode(status)
    if ran.returncode or not plan:
        raise RuntimeError(f"tandem plan {' '.join(arguments)}: {why.decode().strip()}")
    return PlanTime(plan_s, plan_processor_s, end_s, used.ru_utime + used.ru_stime)


def _processor_s(process: int) -> float:
    """That it has used, without its children; the system counts in hundredths of a second."""
    stat = Path(f"/proc/{process}/stat").read_text()
    used = stat.rpartition(")")[2].split()[_USER_TIME : _USER_TIME + 2]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def _rows(name: str, found: Sequence[PlanTime]) -> list[BenchRow]:
    measured: dict[str, tuple[Callable[[PlanTime], float], float | None]] = {
        "time to the plan": (lambda each: each.plan_s, BOUND_S),
        "processor time to the plan": (lambda each: each.plan_processor_s, BOUND_S),
        "time to the end": (lambda each: each.end_s, BOUND_S),
        "processor time": (lambda each: each.processor_s, None),
    }
    return [
        row_of_samples(name, "tandem plan", metric, [of(each) for each in found], "s", bound)
        for metric, (of, bound) in measured.items()
    ]
