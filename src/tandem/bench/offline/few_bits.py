"""`tandem bench offline --few-bits`: LM-Offload's choice of bits, and KVPR's figure 8.

Weights and KV on the host may be in 4 bits where the planner finds them faster; each plan's whole
job is executed in virtual time as the others of this suite, with smaller copies, kernels that
quantize and dequantize at rates of the truth's own, and the CPU's attention over codes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.offline.job import Executed, execute
from tandem.bench.offline.plans import ask, ceiling_of
from tandem.bench.records import BenchRow
from tandem.plan.offline import OfflinePlan
from tandem.planner.offline.answer import offline_plan
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.policies import OfflinePolicy, find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.plan_file import offline_plan_file
from tandem.planner.question import Question
from tandem.spec.kv_type import CodeType
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats

_BITS, _FLAG = 4, "int4"
_POLICIES = ("flexgen", "lm-offload", "auto")
_KVPR = find_offline_policy("kvpr")
_TRIED = 8  # candidates by their bounds


@dataclass(frozen=True, slots=True)
class FewBitsRun:
    """What a policy plans, and what came of it.

    Attributes:
        name: for records and people.
        most_per_s: what no plan of these types exceeds; None: nothing is known.
    """

    name: str
    option: BlockOption
    executed: Executed
    most_per_s: float | None

    @property
    def chosen(self) -> str:
        """What is in few bits, in words."""
        candidate = self.option.candidate
        weights = {"none": "no weights", "all": "all layers", "streamed": "streamed layers"}
        layers = candidate.quantized
        if layers == "streamed" and not candidate.streamed:
            layers = "none"
        kv = {"none": "", "host": " and KV on the host", "all": " and all KV"}
        return f"{weights[layers]}{kv[candidate.kv_in_few_bits]}"


@dataclass(frozen=True, slots=True)
class FewBitsOutcome:
    """Of a cell: policies by what may be in few bits, and KVPR's with its KV in 16 and in 4."""

    cell: OfflineCell
    runs: tuple[FewBitsRun, ...]


def run_few_bits(
    cells: Sequence[OfflineCell], report: Callable[[str], None]
) -> Iterator[FewBitsOutcome]:
    """All of them in every cell, a cell at a time.

    Args:
        report: told in words what is being done.
    """
    for cell in cells:
        report(str(cell))
        run = _Runner(cell, ask(cell), report)
        yield FewBitsOutcome(cell, (*run.policies(), *run.kvpr()))


class _Runner:
    """Of one cell; equal plans are executed once."""

    def __init__(
        self, cell: OfflineCell, question: Question, report: Callable[[str], None]
    ) -> None:
        self._cell, self._question, self._report = cell, question, report
        self._executed: dict[OfflinePlan, Executed] = {}

    def policies(self) -> Iterator[FewBitsRun]:
        """Those that choose bits, and `flexgen`, which has one choice for all weights."""
        for allowed, precision in _allowed(self._question):
            search = OfflineSearch(replace(self._question, precision=precision))
            most_per_s = _most_per_s(self._cell, precision)
            for name in _POLICIES:
                policy = find_offline_policy(name)
                option = search.best(policy)
                if option is not None:
                    option = search.simplest(policy, option)
                    yield self._run(f"{name}, {allowed}", search, policy, option, most_per_s)

    def kvpr(self) -> Iterator[FewBitsRun]:
        """Figure 8: keys and values in 16 and in 4 bits, with and without recomputation."""
        precision = replace(self._question.precision, kv=CodeType.INT4)
        search = OfflineSearch(replace(self._question, precision=precision))
        most_per_s = _most_per_s(self._cell, precision)
        for kv in dict.fromkeys(each.host for each in search.times.precisions.kv_choices):
            for policy in (_KVPR, replace(_KVPR, name="kvpr without", recomputes=False)):
                option = _best_with(search, policy, kv)
                if option is not None:
                    how = "with" if policy.recomputes else "without"
                    kind = kv or search.times.precisions.plain.kv
                    name = f"kvpr {how} recomputation, {kind} KV on the host"
                    yield self._run(name, search, policy, option, most_per_s)

    def _run(
        self,
        name: str,
        search: OfflineSearch,
        policy: OfflinePolicy,
        option: BlockOption,
        most_per_s: float | None,
    ) -> FewBitsRun:
        plan = offline_plan(search, option.candidate, adapts=policy.adapts)
        if plan not in self._executed:
            file = offline_plan_file(self._cell.model_name, search.question, plan, _FLAG)
            self._executed[plan] = execute(self._cell, file)
        found = FewBitsRun(name, option, self._executed[plan], most_per_s)
        self._report(f"{name}: {found.executed.tokens_per_s:.1f} tokens/s, {found.chosen}")
        return found


def _allowed(question: Question) -> Iterator[tuple[str, Precision]]:
    """What may be in few bits: nothing, weights, KV, and both."""
    plain = question.precision
    maps = uniform_formats(question.model, _BITS, None)
    yield "16 bits", plain
    yield "weights in 4 bits", replace(plain, quantized=maps)
    yield "KV in 4 bits", replace(plain, kv=CodeType.INT4)
    yield "weights and KV in 4 bits", replace(plain, quantized=maps, kv=CodeType.INT4)


def _most_per_s(cell: OfflineCell, precision: Precision) -> float | None:
    ceiling = ceiling_of(cell, precision)
    return None if ceiling is None else ceiling.tokens_per_s


def _best_with(
    search: OfflineSearch, policy: OfflinePolicy, kv: CodeType | None
) -> BlockOption | None:
    """Of candidates that keep KV on the host so, the best of those whose bounds are highest."""
    found = [c for c in search.candidates.of(policy) if c.host_kv == kv]
    found.sort(key=search.bound_tokens_per_s, reverse=True)
    options = [search.option(candidate) for candidate in found[:_TRIED]]
    return max(options, key=lambda option: option.tokens_per_s, default=None)


def rows_of(outcome: FewBitsOutcome) -> Iterator[BenchRow]:
    """Rows of the common record format."""
    for run in outcome.runs:
        row = partial(BenchRow, str(outcome.cell), f"virtual {run.name}")
        executed, rates = run.executed, run.option.prediction.rates
        reached = executed.tokens_per_s
        yield row("throughput", reached, "tokens/s", run.most_per_s)
        yield row("predicted over executed", rates.tokens_per_s / reached, "ratio", 1.0)
        yield row("predicted pass over executed", rates.pass_s / executed.pass_s, "ratio", 1.0)
        yield row("accelerator busy", executed.report.accel_busy, "share", 1.0)
        yield row("CPU busy", executed.report.cpu_busy, "share", 1.0)


def describe(outcome: FewBitsOutcome) -> Iterator[str]:
    """Lines for people."""
    yield str(outcome.cell)
    for run in outcome.runs:
        reached, predicted = run.executed.tokens_per_s, run.option.tokens_per_s
        of_most = "" if run.most_per_s is None else f" ({reached / run.most_per_s:.0%})"
        yield (
            f"  {run.name}: {reached:.1f} tokens/s{of_most}, predicted {predicted:.1f} "
            f"({predicted / reached - 1:+.1%}); in 4 bits: {run.chosen}"
        )
        yield f"    {run.option.candidate.describe(outcome.cell.model.num_layers)}"
        for line in run.executed.replans:
            yield f"    {line}"
