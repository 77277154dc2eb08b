"""Whether the plans of jobs are what more freedom, or a larger machine, makes them: over random
machines, models and jobs, `auto` is held against each policy's own answer, and an answer against
those for machines with more of one resource; by the tokens per second of the job, as printed.

`python -m tests.support.job_choices policies 0 40` prints what questions 0 to 39 come to, and so
does `machines`.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tandem.cli.plan_hardware import plan_hardware
from tandem.cli.planning import read_question, read_workload
from tandem.cli.planning_options import GoalOptions, MemoryOptions, RequestOptions, StepOptions
from tandem.planner.answer import Answer, answer
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.sensitivity import larger_machines
from tandem.spec.errors import ConfigError

MODELS = (
    "llama-3.1-8b", "opt-6.7b", "opt-13b", "llama-2-7b", "llama-2-13b", "mistral-nemo-12b",
    "qwen3-14b", "gemma-2-9b", "qwen3-30b-a3b",
)  # fmt: skip
CARDS = ("t4", "a10g", "a4000", "l4", "rtx3090", "rtx4090", "v100", "a100-40")
LEAST = 0.99
"""Of the tokens per second of what allows less, or of a smaller machine."""


@dataclass(frozen=True, slots=True)
class Beside:
    """An answer, and what it is not to be worse than.

    Attributes:
        name: of the policy, or of what the answer's machine has more of.
    """

    name: str
    tokens_per_s: float
    other_tokens_per_s: float

    @property
    def ratio(self) -> float:
        """Of the answer to the other."""
        return self.tokens_per_s / self.other_tokens_per_s


def random_job(seed: int) -> tuple[str, Question]:
    """All requests at once, at `tandem plan`'s defaults; and it in words."""
    draw = random.Random(seed)
    model, card = draw.choice(MODELS), draw.choice(CARDS)
    prompt = draw.choice(["64", "100", "256", "512", "1000", "100-900"])
    generate = draw.choice(["8", "20", "64", "100", "200", "50-200"])
    requests = draw.choice([8, 20, 60, 200, 1000])
    dtype = draw.choice(["float16", None])
    workload = read_workload(RequestOptions(prompt, generate, requests), model)
    memory = MemoryOptions() if dtype is None else MemoryOptions(dtype=dtype)
    hardware = plan_hardware(card, None, None)
    question = read_question(model, hardware, workload, memory, StepOptions(), GoalOptions())
    text = f"{model} {dtype} on {card}, {requests} of {prompt} in, {generate} out"
    return text, question


def asked(question: Question, policy: str = "auto") -> Answer | None:
    """None: nothing fits."""
    try:
        return answer(question, policy)
    except ConfigError:
        return None


def beside_policies(question: Question, names: tuple[str, ...] = ()) -> Iterator[Beside]:
    """`auto` beside each policy alone, or those of these names."""
    auto = asked(question)
    for name in names or POLICIES:
        alone = None if name == "auto" else asked(question, name)
        if alone is not None:
            assert auto is not None, f"'{name}' alone fits"
            yield Beside(name, auto.job_tokens_per_s, alone.job_tokens_per_s)


def on_larger_machines(question: Question) -> Iterator[Beside]:
    """Machines with more of one resource, searched without what is known of this one."""
    small = asked(question)
    for name, larger in larger_machines(question):
        found = None if small is None else asked(larger)
        if small is not None:
            assert found is not None, f"the smaller machine's plan fits with {name}"
            yield Beside(name, found.job_tokens_per_s, small.job_tokens_per_s)


def main(what: str, first: int, count: int) -> None:
    """Print the worst of each question, and how many are worse than they may be."""
    compared = {"policies": beside_policies, "machines": on_larger_machines}[what]
    ratios: list[float] = []
    for seed in range(first, first + count):
        text, question = random_job(seed)
        found = list(compared(question))
        if found:
            worst = min(found, key=lambda each: each.ratio)
            ratios.append(worst.ratio)
            print(f"{seed}: {worst.ratio:.4f} {worst.name}: {text}", flush=True)
    short = sum(ratio < LEAST for ratio in ratios)
    print(f"{short} of {len(ratios)} below {LEAST}, the worst {min(ratios):.4f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
