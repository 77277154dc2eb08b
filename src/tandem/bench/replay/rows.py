"""Rows of a record that say what was replayed."""

from collections.abc import Iterator

from tandem.bench.records import BenchRow
from tandem.bench.replay.replay import Replay


def replay_rows(case: str, variant: str, replay: Replay) -> Iterator[BenchRow]:
    """How many programs, and how many tokens were compared."""
    yield BenchRow(case, variant, "replayed exactly", replay.programs, "programs")
    what = "tokens equal to a plain model's, replayed"
    yield BenchRow(case, variant, what, replay.tokens, "tokens")
