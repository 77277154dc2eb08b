"""Engines of which more is asked than what a core tells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tandem.bench.records import BenchRow
from tandem.engine.building.core_of import core_of
from tandem.engine.building.parts import EngineParts, build_parts
from tandem.engine.building.situation import situation_of, with_sizes
from tandem.engine.core import EngineCore
from tandem.engine.sizing.graph_choice import LABEL, RECORDING_LIMIT_S
from tandem.spec.config import EngineConfig

if TYPE_CHECKING:
    from tandem.plan.executed_op import OpListener

_MIB = 1 << 20
LAUNCHED = "one graph", "one graph beside the host", "parts of layers as graphs"
"""Kinds of graphs, of which it is told how often they were launched."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An engine, warmed up, and what it is made of."""

    core: EngineCore
    parts: EngineParts


def opened(config: EngineConfig, listeners: "Sequence[OpListener]" = ()) -> Opened:
    """Build it.

    Args:
        listeners: told of every operation that its executor ends.

    Raises:
        TandemError: it cannot run so.
    """
    parts = build_parts(config, listeners=listeners)
    warm = parts.target.choice.kind == "cuda"
    if warm:
        parts.run_largest_steps()
    return Opened(core_of(parts, warm=warm), parts)


def with_kv_of(config: EngineConfig, kv_bytes: int) -> EngineConfig:
    """With so much KV on the accelerator, and all else as the configuration's memory allows it:
    weights, workspace and graphs are as large as if KV were not capped.

    Raises:
        TandemError: it cannot run in the configuration's memory.
    """
    _, memory = with_sizes(situation_of(config))
    others = sum(
        entry.predicted_bytes
        for entry in memory.ledger.entries
        if entry.location == "device" and entry.label != "kv pool"
    )
    return replace(config, gpu_memory=str(others + kv_bytes))


def graph_rows(case: str, who: str, parts: EngineParts) -> Iterator[BenchRow]:
    """What recording graphs took of time and memory, beside the limit and the ledger's line, and
    how often each kind was launched so far; none where there are none.
    """
    runner = parts.assembled.machine.runner
    all_graphs = runner.graphs, runner.hybrid, runner.layer_graphs
    made = [each for each in all_graphs if each is not None]
    if not made:
        return
    seconds = sum(each.recording.seconds for each in made)
    yield BenchRow(case, who, "graphs, time to record", seconds, "s", RECORDING_LIMIT_S)
    for each, what in zip(all_graphs, LAUNCHED, strict=True):
        if each is not None:
            yield BenchRow(case, who, f"launched as {what}", each.num_replayed, "times")
    for entry in parts.memory.ledger.entries:
        if entry.label == LABEL and entry.actual_bytes is not None:
            taken, told = (each / _MIB for each in (entry.actual_bytes, entry.predicted_bytes))
            yield BenchRow(case, who, "graphs, memory of the ledger's", taken, "MiB", told)
