"""Decoding steps of which the host has a part, as one graph: over a stand-in of the GPU, with
interpreted kernels, while the CPU's threads are real.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_triton_engine import _GEMMA, _LLAMA, _compare

from tandem.engine.sizing import graph_choice
from tandem.engine.stats import EngineStats
from tandem.kernels.native_pool import Signal, SignalPoint
from tandem.plan import decode_sweep
from tandem.runtime.graph_logits import GraphLogits
from tandem.runtime.host_link import HostLink
from tandem.runtime.host_tasks import HostTasks, SweepTask
from tandem.runtime.hybrid_graphs import HybridGraphs
from tandem.runtime.hybrid_inputs import HybridArrays
from tandem.spec.errors import EngineDeadError

pytestmark = pytest.mark.slow


def _compared(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Mapping[str, object] = _LLAMA,
    **changes: Any,
) -> tuple[EngineStats, list[HybridArrays]]:
    """Also what was launched so; tokens are those of the host alone."""
    launched: list[HybridArrays] = []
    run = HybridGraphs.run

    def noted(graphs: HybridGraphs, arrays: HybridArrays) -> GraphLogits:
        launched.append(arrays)
        return run(graphs, arrays)

    monkeypatch.setattr(HybridGraphs, "run", noted)
    # the interpreter takes long: one size of graphs, however long it takes
    monkeypatch.setattr(graph_choice, "RECORDING_LIMIT_S", 600.0)
    monkeypatch.setattr(decode_sweep, "row_buckets", lambda rows: (rows,))
    given: dict[str, Any] = {"strategy": "ride-along", "cuda_graphs": "on"}
    stats, _ = _compare(directory, monkeypatch, model, **(given | changes))
    assert stats.host_attention_tokens > 0
    return stats, launched


def test_all_keys_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, launched = _compared(tmp_path, monkeypatch, kv_placement="host")
    assert max(len(each.link.rows) for each in launched) == 3
    assert [note for note in stats.notes if note.startswith("decoding of which the host has")]


def test_keys_in_both_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows on the accelerator alone, on the host alone, and with a part in each."""
    _, launched = _compared(tmp_path, monkeypatch, kv_placement="split")
    assert any((each.numbers[4, each.link.rows] >= 0).any() for each in launched)


def test_windows_and_bounded_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, launched = _compared(tmp_path, monkeypatch, _GEMMA, kv_placement="host")
    assert launched


def test_the_accelerator_does_not_wait_for_a_host_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its step stands within a kernel, which only the counter lets go on."""
    prepare, let_go = HostTasks._sweep, list[int]()

    def failing(tasks: HostTasks, *given: Any) -> SweepTask:
        if let_go:  # the second step: the first has shown that all is well
            raise ValueError("no such block")
        let_go.append(0)
        return prepare(tasks, *given)

    monkeypatch.setattr(HostTasks, "_sweep", failing)
    with pytest.raises(EngineDeadError, match="no such block"):
        _compared(tmp_path, monkeypatch, kv_placement="host")


def test_an_error_in_the_hosts_native_work_ends_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its counter was raised all the same: the accelerator's step ends, with wrong tokens."""
    wait = SweepTask.wait

    def failing(task: SweepTask) -> None:
        wait(task)
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(SweepTask, "wait", failing)
    with pytest.raises(EngineDeadError, match="ZeroDivisionError: broken on purpose"):
        _compared(tmp_path, monkeypatch, kv_placement="host")


def test_an_accelerator_that_has_waited_for_too_long_ends_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's part is lost without an error: nobody raises its counter."""
    submit, never = SweepTask.submit, Signal()

    def lost(task: SweepTask, after: Sequence[SignalPoint], then: SignalPoint) -> None:
        submit(task, [*after, (never, 1)], then)

    monkeypatch.setattr(SweepTask, "submit", lost)
    monkeypatch.setattr(HostLink.__init__, "__defaults__", (0.2,))
    with pytest.raises(EngineDeadError, match=r"for the host's part of a layer for 0\.2 s"):
        _compared(tmp_path, monkeypatch, kv_placement="host")
