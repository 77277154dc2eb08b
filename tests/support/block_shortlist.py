"""How often an offline search's shortlist holds the best of all plans, over random small questions.

The shortlist is what the search spends virtual time on, without the papers' policies searched as
if alone. All plans are those of a grid without gaps that knows nothing of the search's own.

`python -m tests.support.block_shortlist 200` prints what a larger number of questions comes to.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import BATCHES
from tandem.planner.offline.footprint import BlockFootprint
from tandem.planner.offline.policies import OFFLINE_POLICIES
from tandem.planner.offline.precisions import Precisions
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Question

AUTO = OFFLINE_POLICIES["auto"]
AS_GOOD = 0.99
"""Of the best: predictions are no finer."""
MOST_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class BlockCase:
    """One question.

    Attributes:
        listed: best tokens per second of the shortlist; `best` of all plans; 0: nothing fits.
        plans: that fit. timed: of them, those that no bound ruled out.
        winner: the best one, if the shortlist has nothing as good.
    """

    question: Question
    listed: float
    best: float
    plans: int
    timed: int
    winner: BlockCandidate | None

    @property
    def holds(self) -> bool:
        """Whether the shortlist has something as good as the best."""
        return self.listed >= AS_GOOD * self.best


def random_job(seed: int) -> Question:
    """A small one: at most eight requests, six to eight layers, and an accelerator that holds from
    a tenth to all of the layers and their KV.
    """
    draw = random.Random(seed)
    question = ask(
        short(plannable_spec(draw.choice(["llama-3.1-8b", "opt-30b"])), draw.randint(6, 8)),
        draw.choice(["t4", "a10g", "rtx4090", "a100-40"]),
        draw.choice(["g5.4xlarge", "desktop-ddr4", "lm-offload", "server-genoa"]),
        prompt=draw.choice(["32", "300-900", "1500"]),
        generate=draw.choice(["8", "100-200", "500"]),
        requests=draw.randint(1, MOST_REQUESTS),
    )
    footprint = BlockFootprint(question, Precisions.of(question.precision))
    requests, layers = question.lengths.requests, question.model.num_layers
    whole = footprint.device(BlockCandidate(1, 0, requests, 0, 0), prompts_on_host=True)
    bare = footprint.device(BlockCandidate(1, layers, 0, 0, requests), prompts_on_host=True)
    movable = whole.total - bare.total
    return replace(
        question,
        device_bytes=int(bare.total + draw.uniform(0.05, 1.05) * movable),
        host_bytes=int(whole.total * draw.choice([1.1, 3.0])),
    )


def shortlisted(question: Question) -> BlockCase:
    """Hold one question's shortlist against every plan."""
    search = OfflineSearch(question)
    found = search.shortlisted(AUTO)
    listed = best = 0.0 if found is None else found.tokens_per_s
    placed = dict.fromkeys(map(search.candidates.placed, _every(question)))
    fitting = [each for each in placed if search.candidates.possible(each, AUTO)]
    bounds = [(search.bound_tokens_per_s(each), i) for i, each in enumerate(fitting)]
    winner, timed = None, 0
    for bound, i in sorted(bounds, reverse=True):
        if bound <= best * (1 + 1e-9):
            break
        timed += 1
        reached = search.option(fitting[i]).tokens_per_s
        if reached > best:
            best, winner = reached, fitting[i]
    return BlockCase(question, listed, best, len(fitting), timed, winner)


def _every(question: Question) -> Iterator[BlockCandidate]:
    requests, layers = question.lengths.requests, question.model.num_layers
    prompt, size = round(question.lengths.prompt_tokens), question.block_size
    prefixes = {0, prompt // 2 // size * size, prompt // size * size}
    for batches in BATCHES:
        for rows in range(1, -(-requests // batches) + 1):
            if batches > 1 and rows * (batches - 1) >= requests:
                continue
            for resident in range(rows + 1):
                for cpu in range(rows - resident + 1):
                    block = BlockCandidate(batches, 0, resident, rows - resident - cpu, cpu)
                    for weights in _weights(block, layers):
                        yield weights
                        if weights.streamed_rows and not weights.lent and not weights.mlps:
                            for prefix in prefixes - {0}:
                                yield replace(weights, recomputed_tokens=prefix)


def _weights(block: BlockCandidate, layers: int) -> Iterator[BlockCandidate]:
    """Any number of layers, or MLPs, streamed, and of these on the CPU."""
    yield block
    for streamed in range(STREAM_SLOTS + 1, layers + 1):
        for mlps in (False, True):
            for lent in range(streamed - STREAM_SLOTS + 1):
                yield replace(block, streamed=streamed, mlps=mlps, lent=lent)


def main(count: int) -> None:
    """Print the share of questions whose shortlist holds the best."""
    cases = [shortlisted(random_job(seed)) for seed in range(count)]
    fitting = [case for case in cases if case.best]
    for case in fitting:
        if not case.holds:
            layers = case.question.model.num_layers
            named = f"{layers} layers, {case.question.hardware.name}"
            told = "" if case.winner is None else case.winner.describe(layers)
            print(f"{named}: {case.listed / case.best:.3f} of the best: {told}")
    held = sum(case.holds for case in fitting)
    print(
        f"{held} of {len(fitting)} shortlists hold the best of "
        f"{sum(case.plans for case in fitting)} plans ({sum(case.timed for case in fitting)} timed)"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
