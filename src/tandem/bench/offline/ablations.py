"""`tandem bench offline --ablations`: every means taken away by itself.

A means is taken away by a policy that allows all others, so that plans without it are the best that
there are; each whole job is executed in virtual time as the others of this suite. Beside them are
KVPR's figures 9 and 10.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tandem.bench.offline.breakdown import Breakdown
from tandem.bench.offline.cell import OfflineCell
from tandem.bench.offline.job import Executed, execute
from tandem.bench.offline.plans import ask, ceiling_of
from tandem.bench.records import BenchRow
from tandem.kernels import native
from tandem.plan.offline import OfflinePlan
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.policies import OfflinePolicy, find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.plan_file import offline_plan_file
from tandem.spec.units import format_size

if TYPE_CHECKING:
    from tandem.bench.offline.host_means import HostMeans

_ALL = find_offline_policy("auto")
_KVPR = find_offline_policy("kvpr")
_GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Ablation:
    """What is left when one means is taken away.

    Attributes:
        adapts: shares are solved anew as the job runs.
        overlaps: layers may overlap where the CPU attends.
        in_parts: streamed layers come in parts, what is used before attention first, or whole;
            None: as planned.
        note: which ablation of a paper it is.
    """

    policy: OfflinePolicy
    adapts: bool = True
    overlaps: bool = True
    in_parts: bool | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """For people."""
        fixed = self.policy.adapts and not self.adapts
        named = f"{self.policy.name}, shares fixed" if fixed else self.policy.name
        named = named if self.overlaps else f"{named}, layer by layer"
        if self.in_parts is None:
            return named
        return f"{named}, layers in parts" if self.in_parts else f"{named}, layers whole"


def _without(name: str, **taken: bool) -> Ablation:
    return Ablation(replace(_ALL, name=f"auto without {name}", **taken))


LEVERS = (
    Ablation(_ALL),
    Ablation(_ALL, adapts=False),
    Ablation(_ALL, overlaps=False),
    Ablation(_ALL, in_parts=False),
    _without("resident weights", all_streamed=True),
    Ablation(replace(_ALL, name="auto without several batches", orders=("rows",))),
    _without("KV on the accelerator", resident=False),
    _without("streamed KV", streams=False),
    _without("attention on the CPU", attends=False),
    _without("layers and MLPs on the CPU", computes=False, computes_layers=False),
    _without("whole layers on the CPU", computes_layers=False),
    _without("columns of MLPs on the CPU", divides=False),
    _without("attention's maps on the CPU beside columns", cuts=False),
    replace(
        _without(
            "MLPs apart from their layers, and layers on the CPU",
            apart=False,
            computes=False,
            computes_layers=False,
        ),
        note="what does not fit are whole layers, streamed",
    ),
    replace(
        _without("streamed KV beside attention on the CPU", mixes=False),
        note="Park and Egger's pieces off: link or CPU has all of Scores and WV",
    ),
    Ablation(
        replace(_ALL, name="auto, KV on the host shared out in 8 parts", parts=8),
        note="Park and Egger's 8 pieces of Scores and WV; auto's are single sequences",
    ),
)
KVPR = (
    Ablation(_KVPR),
    Ablation(replace(_KVPR, name="kvpr without recomputation", recomputes=False)),
    Ablation(_KVPR, in_parts=False, note="KVPR's coarse-grained order of weights, table 2"),
    Ablation(_KVPR, in_parts=True, note="its fine-grained order: W_K and W_V first"),
)
PUBLISHED = {
    "kvpr": {"keys and values": 0.38, "activations": 0.08, "accelerator": 0.133, "busy": 0.99},
    "kvpr without recomputation": {"keys and values": 0.58, "accelerator": 0.023, "busy": 0.85},
}
"""KVPR's figures 9 (shares of the runtime) and 10 (use of the accelerator), for its machine."""


@dataclass(frozen=True, slots=True)
class AblationRun:
    """What came of one.

    Attributes:
        shares: of what passes spend their queues' time on.
        link_busy: bytes that crossed to the accelerator, over what the probed link would bring.
    """

    ablation: Ablation
    plan: OfflinePlan
    executed: Executed
    shares: dict[str, float]
    link_busy: float


@dataclass(frozen=True, slots=True)
class AblationOutcome:
    """Of a cell.

    Attributes:
        host: threads and layouts, measured here; None without the compiled kernels, or if it is not
            asked for.
    """

    cell: OfflineCell
    most_per_s: float | None
    runs: tuple[AblationRun, ...]
    host: "HostMeans | None" = None


def run_ablations(
    cells: Sequence[OfflineCell], report: Callable[[str], None], *, on_host: bool = True
) -> Iterator[AblationOutcome]:
    """All of them in every cell, each cell as soon as it is done.

    Args:
        on_host: also what threads and layouts are worth on the machine at hand.
        report: told in words what is being done.
    """
    for cell in cells:
        yield _run_cell(cell, report, on_host=on_host)


def _run_cell(
    cell: OfflineCell, report: Callable[[str], None], *, on_host: bool
) -> AblationOutcome:
    search, ceiling = OfflineSearch(ask(cell)), ceiling_of(cell)
    runs: list[AblationRun] = []
    for ablation in (*LEVERS, *KVPR):
        run = _run(cell, search, ablation)
        if run is None:
            report(f"{ablation.name}: nothing fits")
        else:
            runs.append(run)
            report(f"{ablation.name}: {run.executed.tokens_per_s:.1f} tokens/s")
    most = None if ceiling is None else ceiling.tokens_per_s
    host = _host_means(cell, report) if on_host else None
    return AblationOutcome(cell, most, tuple(runs), host)


def _host_means(cell: OfflineCell, report: Callable[[str], None]) -> "HostMeans | None":
    if not native.available():
        report(f"threads and layouts are not measured: {native.unavailable_message()}")
        return None
    from tandem.bench.offline.host_means import measure_host_means

    return measure_host_means(cell.model, report)


def _run(cell: OfflineCell, search: OfflineSearch, ablation: Ablation) -> AblationRun | None:
    option = search.best(ablation.policy)
    if option is None:
        return None
    option = search.simplest(ablation.policy, option)
    adapts = ablation.adapts and ablation.policy.adapts
    plan = offline_plan(search, option.candidate, adapts=adapts)
    if not ablation.overlaps:
        terms = None if plan.terms is None else replace(plan.terms, layers_overlap=False)
        plan = replace(plan, layers_overlap=False, terms=terms)
    if ablation.in_parts is not None:
        plan = replace(plan, weights_in_parts=ablation.in_parts)
    breakdown = Breakdown()
    file = offline_plan_file(cell.model_name, search.question, plan)
    executed = execute(cell, file, (breakdown.executed,))
    most = search.question.hardware.link.h2d_bytes_per_s * executed.wall_s
    link_busy = executed.report.brought_bytes / most
    return AblationRun(ablation, plan, executed, breakdown.shares, link_busy)


def rows_of(outcome: AblationOutcome) -> Iterator[BenchRow]:
    """Rows of the common record format."""
    case = str(outcome.cell)
    auto = outcome.runs[0].executed.tokens_per_s
    for run in outcome.runs:
        row = partial(BenchRow, case, f"virtual {run.ablation.name}")
        executed, said = run.executed, PUBLISHED.get(run.ablation.name, {})
        yield row("throughput", executed.tokens_per_s, "tokens/s", outcome.most_per_s)
        yield row("auto over it", auto / executed.tokens_per_s, "ratio", 1.0)
        for work, share in run.shares.items():
            yield row(f"{work}, share of queues' time", share, "share", said.get(work))
        yield row("link to the accelerator busy", run.link_busy, "share", 1.0)
        yield row("accelerator busy", executed.report.accel_busy, "share", said.get("busy", 1.0))
        pinned = run.plan.host.pinned_bytes / max(1, run.plan.host.used_bytes)
        yield row("pinned, of host memory in use", pinned, "share", 1.0)
        yield row(
            "pinned", run.plan.host.pinned_bytes / _GIGA, "GB", run.plan.host.used_bytes / _GIGA
        )
    if outcome.host is not None:
        from tandem.bench.offline.host_means import host_rows

        yield from host_rows(outcome.host)


def describe(outcome: AblationOutcome) -> Iterator[str]:
    """Lines for people."""
    yield str(outcome.cell)
    auto = outcome.runs[0].executed.tokens_per_s
    for run in outcome.runs:
        rate = run.executed.tokens_per_s
        of_most = "" if outcome.most_per_s is None else f" ({rate / outcome.most_per_s:.0%})"
        yield f"  {run.ablation.name}: {rate:.1f} tokens/s{of_most}, {rate / auto:.2f} of auto"
        shares = ", ".join(f"{work} {share:.0%}" for work, share in run.shares.items() if share)
        yield (
            f"    accelerator busy {run.executed.report.accel_busy:.0%}, link {run.link_busy:.0%}; "
            f"queues' time: {shares}"
        )
        host = run.plan.host
        yield (
            f"    pinned {format_size(host.pinned_bytes)} of {format_size(host.used_bytes)} on the "
            "host"
        )
        if run.ablation.note:
            yield f"    {run.ablation.note}"
        said = PUBLISHED.get(run.ablation.name)
        if said is not None:
            figures = ", ".join(f"{work} {share:.0%}" for work, share in said.items())
            yield f"    KVPR's figures 9 and 10 on its machine: {figures}"
    if outcome.host is not None:
        from tandem.bench.offline.host_means import describe_host

        yield from describe_host(outcome.host)
