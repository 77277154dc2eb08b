"""How often the planner's shortlist holds the best of all placements, over random small questions.

The shortlist is what the search spends virtual time on, without the papers' policies searched as
if alone. All placements are those of a grid without gaps that knows nothing of the search's own.

`python -m tests.support.shortlist 200` prints what a larger number of questions comes to.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.search import Search

AUTO = POLICIES["auto"]
AS_GOOD = 0.99
"""Of the best: predictions are no finer, and plans are chosen within as much."""
MOST_ROWS = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One question.

    Attributes:
        listed: best tokens per second of the shortlist; `best` of all placements; 0: nothing fits.
        placements: that fit. timed: of them, those that no bound ruled out.
    """

    question: Question
    listed: float
    best: float
    placements: int
    timed: int

    @property
    def holds(self) -> bool:
        """Whether the shortlist has something as good as the best."""
        return self.listed >= AS_GOOD * self.best


def random_question(seed: int) -> Question:
    """A small one: at most eight requests, six to eight layers, and an accelerator that holds from
    a tenth to all of the layers and their KV.
    """
    draw = random.Random(seed)
    name = draw.choice(["llama-3.1-8b", "opt-30b", "gemma-3-27b", "qwen3-30b-a3b"])
    question = ask(
        short(plannable_spec(name), draw.randint(6, 8)),
        draw.choice(["t4", "a10g", "rtx4090", "a100-40"]),
        draw.choice(["g5.4xlarge", "desktop-ddr4", "lm-offload", "server-genoa"]),
        prompt=draw.choice(["32", "300-900", "1500"]),
        generate=draw.choice(["8", "100-200", "500"]),
        requests=draw.randint(1, MOST_ROWS),
        objective=draw.choice(["throughput", "throughput", "latency"]),
    )
    footprint = Footprint(question)
    movable = question.movable_layers * footprint.layer_bytes
    movable += question.lengths.requests * footprint.row_bytes
    fixed = footprint.outside_bytes + footprint.workspace("rendezvous", MOST_ROWS)
    return replace(
        question,
        device_bytes=int(fixed + draw.uniform(0.1, 1.1) * movable),
        host_bytes=int(movable * draw.choice([0.6, 1.1, 3.0])),
    )


def shortlisted(question: Question) -> Case:
    """Hold one question's shortlist against every placement."""
    search = Search(question)
    found = search.shortlisted(AUTO)
    listed = 0.0 if found is None else found.tokens_per_s
    predictor = search.predictor
    fitting = [each for each in _every(question) if search.footprint.fits(each)]
    bounds = [(predictor.bound(each).job_tokens_per_s, i) for i, each in enumerate(fitting)]
    best, timed = listed, 0
    for bound, i in sorted(bounds, reverse=True):
        if bound <= best * (1 + 1e-9):
            break
        timed += 1
        best = max(best, predictor.predict(fitting[i]).rates.job_tokens_per_s)
    return Case(question, listed, best, len(fitting), timed)


def _every(question: Question) -> Iterator[Candidate]:
    layers, rows = question.model.num_layers, min(MOST_ROWS, question.max_rows)
    for elsewhere in dict.fromkeys(_elsewheres(question)):
        for count in range(1, rows + 1):
            yield candidate_of("gpu-only", elsewhere, count, 0)
        for hosted in range(1, rows + 1):
            for device in range(rows - hosted + 1):
                yield candidate_of("ride-along", elsewhere, device, hosted)
                throughput = question.objective == "throughput"
                if throughput and elsewhere == Elsewhere() and hosted > 1 and not device:
                    yield candidate_of("symmetric", elsewhere, 0, hosted, layers)
                if question.objective == "latency" or not device:
                    continue
                if not elsewhere.on_cpu and not elsewhere.on_disk:
                    yield candidate_of("rendezvous", elsewhere, device, hosted)
                    yield candidate_of("rendezvous-ahead", elsewhere, device, hosted)
                if elsewhere == Elsewhere():
                    for passes in range(1, layers + 1):
                        yield candidate_of("asymmetric", elsewhere, device, hosted, passes)


def _elsewheres(question: Question) -> Iterator[Elsewhere]:
    """Any number of layers elsewhere, in every way that the search knows."""
    layers = question.movable_layers
    yield Elsewhere()
    for streamed in range(STREAM_SLOTS + 1, layers + 1):
        for mlps in (False, True):
            for lent in range(layers):
                yield Elsewhere(streamed, mlps=mlps).lending(lent)
    for count in range(1, layers + 1):
        yield Elsewhere(0, count, "cpu")
        yield Elsewhere(0, count, "cpu-mlp")
    experts = question.model.experts
    for kept in range(1, experts.count, 9) if experts is not None else ():
        for lent in (0, layers // 2, layers):
            yield Elsewhere(layers, mlps=True, experts=kept).lending(lent)
        yield Elsewhere(0, layers, "cpu-mlp", experts=kept)


def main(count: int) -> None:
    """Print the share of questions whose shortlist holds the best."""
    cases = [shortlisted(random_question(seed)) for seed in range(count)]
    fitting = [case for case in cases if case.best]
    for case in fitting:
        if not case.holds:
            question = case.question
            asked = f"{question.model.num_layers} layers, {question.hardware.name}"
            print(f"{asked}, {question.objective}: {case.listed / case.best:.3f} of the best")
    held = sum(case.holds for case in fitting)
    print(
        f"{held} of {len(fitting)} shortlists hold the best of "
        f"{sum(case.placements for case in fitting)} placements "
        f"({sum(case.timed for case in fitting)} timed)"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
