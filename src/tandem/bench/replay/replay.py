"""Whether a paced run's programs give the right tokens.

The paced emulator computes nothing on its accelerator, and its tokens are made up. Afterwards the
programs that it was given, all of them, in their order, are executed by the exact emulator, with a
small model in the place of the real one: as many layers, the same blocks, rows, lanes, cohorts,
copies and joins, and the same made-up tokens as input. What it computes in the place of each must
be what the model says of the whole text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tandem.bench.replay.plain import Expected, expected
from tandem.bench.replay.small_model import VOCABULARY, machine_of, small_model
from tandem.bench.replay.texts import Texts, read_texts
from tandem.engine.building.paced import PacedEngine
from tandem.plan.events import TokensSampled
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice
from tandem.runtime.paced.journal import ProgramJournal
from tandem.runtime.paced.replayed import ReplayExecutor, replayed
from tandem.spec.errors import TandemError

TIE_MARGIN = 1e-5
"""Of log-probabilities: two orders of float32 sums may choose either of tokens that are closer."""
LOGPROB_ERROR = 1e-4
"""By which two orders of sums may differ in a log-probability."""

_NONE = "no program was replayed exactly, no token compared"
NOT_REPLAYED = f"{_NONE}: left out by --no-replay"
MIXTURE_NOT_REPLAYED = f"{_NONE}: a mixture's cannot be yet"


class ReplayMismatchError(TandemError):
    """A token of a replay is not what the model says."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What was executed of a run, all of it with the right tokens.

    Attributes:
        tokens: that were compared. ties: of them, others that were as likely.
        worst: by how much a log-probability differed at most.
    """

    programs: int
    requests: int
    tokens: int
    ties: int
    worst: float

    @staticmethod
    def joined(replays: "Sequence[Replay]") -> "Replay":
        """Of several runs, at least one."""
        return Replay(
            sum(each.programs for each in replays),
            sum(each.requests for each in replays),
            sum(each.tokens for each in replays),
            sum(each.ties for each in replays),
            max(each.worst for each in replays),
        )

    def describe(self) -> str:
        """For people."""
        return (
            f"replayed exactly: {self.programs:,} programs, {self.tokens:,} tokens of "
            f"{self.requests:,} requests, all as a plain model's ({self.ties} ties; "
            f"log-probabilities within {self.worst:.0e})"
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """A paced run.

    Attributes:
        name: for people. plan: as it was executed. num_layers: of its model.
    """

    name: str
    plan: OnlinePlan
    num_layers: int
    journal: ProgramJournal

    @staticmethod
    def of(name: str, engine: PacedEngine, num_layers: int) -> "Recorded":
        """The run so far, of an engine that keeps a journal; packed, while no time is measured."""
        assert engine.journal is not None, "this run is not kept"
        engine.journal.pack()
        return Recorded(name, engine.memory.plan, num_layers, engine.journal)


def replay(run: Recorded, *, seed: int = 0) -> Replay:
    """Execute a run's programs again.

    Args:
        seed: of the exact emulator's order.

    Raises:
        ReplayError: an operation failed.
        ReplayMismatchError: a token is wrong.
    """
    plan = run.plan
    texts = read_texts(run.journal, VOCABULARY)
    with TemporaryDirectory() as folder:
        where = Path(folder), run.num_layers, plan.max_model_len
        right = expected(small_model(*where), texts)
        model = small_model(*where, SweepChoice.of_plan(plan.weights, plan.cpu_rules))
        machine = machine_of(
            model, plan.block_size, plan.device_blocks, plan.host_blocks, plan.max_num_seqs
        )
        judge = _Judge(run.name, texts, right)
        try:
            executor = ReplayExecutor(machine, texts.told, VOCABULARY, seed)
            for event in replayed(run.journal, executor):
                judge.sampled(event)
        finally:
            machine.free()
    return judge.verdict()


class _Judge:
    """Holds what was sampled against what the model says."""

    def __init__(self, name: str, texts: Texts, right: Expected) -> None:
        self._name, self._texts, self._right = name, texts, right
        self._tokens = self._ties = 0
        self._worst = 0.0

    def sampled(self, event: TokensSampled) -> None:
        """Tokens of one lane.

        Raises:
            ReplayMismatchError: one is wrong.
        """
        places = self._texts.places.get((event.step_id, event.lane))
        if places is None:
            return  # sampled when the run had ended: nobody was told
        right = self._right
        assert event.logprobs is not None
        errors = np.abs(event.logprobs - right.logprobs[places])
        other = event.token_ids != right.ids[places]
        tied = other & (right.margins[places] < TIE_MARGIN)
        wrong = ~event.valid | ~(errors <= LOGPROB_ERROR) | (other & ~tied)
        if wrong.any():
            self._refuse(event, places, int(wrong.argmax()))
        self._tokens += len(places)
        self._ties += int(tied.sum())
        self._worst = max(self._worst, float(errors.max(initial=0.0)))

    def _refuse(self, event: TokensSampled, places: np.ndarray, n: int) -> None:
        right, place = self._right, places[n]
        assert event.logprobs is not None
        raise ReplayMismatchError(
            f"{self._name}: replayed step {event.step_id} gave token {event.token_ids[n]} "
            f"(log-probability {event.logprobs[n]:.6f}) where {right.ids[place]} "
            f"({right.logprobs[place]:.6f}) is right: this is a fault of Tandem's, please report it"
        )

    def verdict(self) -> Replay:
        """All were right."""
        texts = self._texts
        return Replay(texts.programs, len(texts.requests), self._tokens, self._ties, self._worst)
