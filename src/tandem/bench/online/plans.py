"""Plans of every policy from a profile: nothing else is known here of the machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.bench.online.cell import DTYPE
from tandem.memory.margin import margin_bytes
from tandem.plan.online import OnlinePlan
from tandem.planner.answer import online_plan
from tandem.planner.option import Option
from tandem.planner.policies import find_policy
from tandem.planner.question import Lengths, Question
from tandem.planner.search import Search
from tandem.profiling.hardware import measured_hardware
from tandem.profiling.profile import Profile
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class Planned:
    """What a policy would do; None if it cannot run this at all."""

    policy: str
    option: Option | None
    plan: OnlinePlan | None


def ask(
    profile: Profile,
    model: ModelSpec,
    workload: Workload,
    host_bytes: int,
    max_num_batched_tokens: int,
) -> Question:
    """The planner's question.

    Args:
        host_bytes: of the host's memory, what may be used.
    """
    hardware = measured_hardware(profile, host_bytes)
    card = hardware.accelerator.memory_bytes
    return Question(
        model=model,
        hardware=hardware,
        precision=Precision.uniform(DTYPE),
        lengths=Lengths.of(workload),
        device_bytes=card - margin_bytes(card),
        host_bytes=host_bytes,
        max_num_batched_tokens=max_num_batched_tokens,
        measured=profile.host,
    )


def plan_policies(question: Question, policies: Sequence[str]) -> tuple[Planned, ...]:
    """Each policy's plan, in that order.

    Raises:
        ConfigError: an unknown policy, or one that cannot be planned.
    """
    search = Search(question)
    planned: list[Planned] = []
    for name in policies:
        option = search.choice(find_policy(name))
        plan = None if option is None else online_plan(search, option)
        planned.append(Planned(name, option, plan))
    return tuple(planned)
