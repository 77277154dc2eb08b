"""What an executor reports (contract 3): facts, in the order they became true."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.plan.program import OpKind, Queue


class LaneDone(NamedTuple):
    """A lane has passed the last layer: the KV of its tokens is complete in every layer."""

    step_id: int
    lane: int


class LaneAdvanced(NamedTuple):
    """A cohort's join was decided; `joined` False: it was not ready and stays where it is.

    Attributes:
        before: lanes of the same cohort in the same step whose joins happened one after the other
            just before, and of which nothing has been said yet.
    """

    step_id: int
    lane: int
    joined: bool
    before: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TransferDone:
    """A two-phase copy has arrived; its source may be released and its target used."""

    step_id: int
    transfer_id: int


class TokensSampled(NamedTuple):
    """Sampled ids of one sampling program's lane, in the order of its rows.

    Attributes:
        token_ids: int64 [n].
        valid: bool [n]; False where the model gave no usable logits (nan, or all ruled out).
        logprobs: float32 [n] of the sampled tokens, if wanted by any row.
        top_token_ids, top_logprobs: [n, k], likeliest first, if wanted.
    """

    step_id: int
    lane: int
    token_ids: NDArray[np.int64]
    valid: NDArray[np.bool_]
    logprobs: NDArray[np.float32] | None = None
    top_token_ids: NDArray[np.int64] | None = None
    top_logprobs: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When a program's operations ran, in seconds of the executor's clock.

    Attributes:
        submitted_s: when the executor was given it.
        start_s, end_s: of the first operation to begin, and of the last one to end.
        busy_s: time of its operations by queue and kind, waits left out. Operations that ran as
            one call count as the first of them.
    """

    submitted_s: float
    start_s: float
    end_s: float
    busy_s: Mapping[tuple[Queue, OpKind], float]


@dataclass(frozen=True, slots=True)
class StepRetired:
    """Every operation of a program has signalled; blocks that only it named may be reused.

    Attributes:
        times: None where time means nothing: in the exact emulator, the simulator, and tests.
    """

    step_id: int
    times: StepTimes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """An operation raised. The executor is unusable; every running request fails with `message`."""

    step_id: int
    message: str


Event = LaneDone | LaneAdvanced | TransferDone | TokensSampled | StepRetired | Failed
