"""The planner asked about a paper's machine: its policies over the accelerator alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tandem.bench.papers.models import MODELS
from tandem.memory.host_default import fillable_host_bytes
from tandem.memory.margin import margin_bytes
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES, Policy
from tandem.planner.question import Lengths, Question
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import STEP_SIZES, with_steps_that_fit
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.precision import Precision
from tandem.spec.workload import LengthDistribution, drawn_workload

BASELINE, AUTO = "gpu-only", "auto"
RESIDENT = "gpu-only, layers resident"
"""As the papers' baselines run: no layer streamed, fewer requests instead."""
_REQUESTS = 2000  # NEO, appendix: of each of its runs
_SPREAD = 0.1  # of lengths, as in NEO's synthetic workloads


@dataclass(frozen=True, slots=True)
class Asked:
    """A machine, a model, and requests that are all there at once.

    Attributes:
        accelerator, host: by name.
        host_bytes_per_s: what the host's cores read, in place of the named host's rate.
        model: of `MODELS`, in float16.
    """

    accelerator: str
    host: str
    host_bytes_per_s: float
    model: str
    prompt: LengthDistribution
    generate: LengthDistribution

    def giving(self, generate: int) -> "Asked":
        """With about so many tokens out."""
        return replace(self, generate=around(generate))

    def of_lengths(self, prompt: LengthDistribution, generate: LengthDistribution) -> "Asked":
        """With other requests."""
        return replace(self, prompt=prompt, generate=generate)

    def question(self) -> Question:
        """The planner's; it may choose the size of steps."""
        hardware = pair_hardware(self.accelerator, self.host)
        host = replace(hardware.host, memory_bandwidth_bytes_per_s=self.host_bytes_per_s)
        card = hardware.accelerator.memory_bytes
        workload = drawn_workload(self.prompt, self.generate, _REQUESTS)
        question = Question(
            model=MODELS[self.model],
            hardware=replace(hardware, host=host),
            precision=Precision.uniform(DType.FLOAT16),
            lengths=Lengths.of(workload),
            device_bytes=card - margin_bytes(card),
            host_bytes=fillable_host_bytes(host.memory_bytes),
            step_sizes=STEP_SIZES,
        )
        return with_steps_that_fit(question, POLICIES[AUTO])


@dataclass(frozen=True, slots=True)
class Speeds:
    """What the planner predicts.

    Attributes:
        generate_tokens: of a mean request.
        by_policy: output tokens per second of the whole job, by which plans are ranked: of
            `BASELINE`, `RESIDENT`, `AUTO` and the papers' policies.
        ceiling_gain: most that any plan gains over the accelerator alone, in steps of any size and
            while all places are taken.
    """

    generate_tokens: float
    by_policy: Mapping[str, float]
    ceiling_gain: float

    def gain(self, policy: str, over: str = BASELINE) -> float:
        """One policy's over another's."""
        return self.by_policy[policy] / self.by_policy[over] - 1


def speeds(asked: Asked, policies: Sequence[str]) -> Speeds:
    """Plan for the accelerator alone, for `auto`, and for each of some policies.

    Raises:
        ValueError: nothing fits under one of them.
    """
    question = asked.question()
    search = Search(question)
    wanted = [POLICIES[name] for name in (BASELINE, *policies, AUTO)]
    wanted.append(replace(POLICIES[BASELINE], name=RESIDENT, streams=False))
    plans = {policy.name: _plan(search, policy) for policy in wanted}
    ceilings = (search.ceiling(POLICIES[AUTO], step) for step in question.steps)
    most = max(ceiling.tokens_per_s for ceiling in ceilings if ceiling is not None)
    return Speeds(
        question.lengths.generated_tokens,
        {name: plan.tokens_per_s for name, plan in plans.items()},
        most / plans[BASELINE].prediction.rates.tokens_per_s - 1,
    )


def around(mean: int) -> LengthDistribution:
    """Uniform within a tenth of a mean."""
    low, high = round(mean * (1 - _SPREAD)), round(mean * (1 + _SPREAD))
    return LengthDistribution("uniform", low, high)


def _plan(search: Search, policy: Policy) -> Option:
    option = search.choice(policy)
    if option is None:
        raise ValueError(f"nothing fits under {policy.name} on {search.question.hardware.name}")
    return option
