"""Synthetic tokens of the paced emulator: no logits exist, lengths are forced by the requests."""

import numpy as np

from tandem.plan.binding import LongArray
from tandem.plan.events import TokensSampled
from tandem.plan.program import StepProgram
from tandem.runtime.paced.program import PacedProgram
from tandem.spec.model import ModelSpec

_ROW_STEP, _POSITION_STEP = 7919, 104729


class SyntheticTokens:
    """Ids that are a function of (row, position) and never end a sequence."""

    def __init__(self, model: ModelSpec) -> None:
        ids = np.arange(model.vocab_size, dtype=np.int64)
        self._allowed: LongArray = np.setdiff1d(ids, np.array(model.eos_token_ids, np.int64))

    def choose(self, rows: LongArray, positions: LongArray) -> LongArray:
        """Ids int64 [n] for rows and positions int64 [n]."""
        return self._allowed[(rows * _ROW_STEP + positions * _POSITION_STEP) % len(self._allowed)]

    def sample(self, program: StepProgram, lane: int, forward: PacedProgram) -> TokensSampled:
        """The event of one lane of a sampling program. There are no log-probabilities."""
        wanted = program.sampling[lane]
        binding = forward.program.lanes[program.sampling_lanes[lane]].binding
        tokens = binding.logits_index[wanted.logits_index]
        positions = binding.positions[tokens].astype(np.int64) + 1
        ids = self.choose(wanted.rows.astype(np.int64), positions)
        return TokensSampled(program.step_id, lane, ids, np.ones(len(ids), dtype=np.bool_))
