"""Which tiny models run in which modes.

A mode is about who runs when and where: batches, lanes, tiers, cohorts, preemption, executors. It
meets a model in few ways only: positions that come with each row or are looked up, windows that
differ from layer to layer, rotations that do, scores that are capped wherever they are made,
experts that gather rows of several lanes, in every layer or in some. So one model of each such
*kind* runs in every mode, and all others, which differ within the maps of a row, take turns: each
in a few modes, the next in those that follow.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tests.parity.modes import MODES, Mode
from tests.parity.tiny_models import CASES, Case

Each = TypeVar("Each")

KINDS = {
    "rotary positions": "llama-mha",
    "windows in some layers, capped scores": "gemma2-window",
    "experts, windows in all layers": "mixtral-window",
    "rotations by layer": "gemma3-window",
    "experts in some layers": "qwen3moe-every-other",
    "learned positions": "opt-tied",
}
MODES_PER_MODEL = 3


def models_in_modes() -> Iterator[tuple[Case, Mode]]:
    """Each model beside its modes, one model after another."""
    turn = 0
    for case in CASES:
        modes: Sequence[Mode] = MODES
        if case.id not in KINDS.values():
            modes = [MODES[(turn + i) % len(MODES)] for i in range(MODES_PER_MODEL)]
            turn += MODES_PER_MODEL
        for mode in modes:
            yield case, mode


def modes_in_turns(others: Sequence[Each]) -> Iterator[tuple[Mode, Each]]:
    """Every mode beside one of `others`, the next beside the next."""
    for i, mode in enumerate(MODES):
        yield mode, others[i % len(others)]
