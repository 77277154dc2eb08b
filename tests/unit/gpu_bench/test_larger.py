"""What is told of weights that do not fit where nothing can be simulated."""

from pathlib import Path
from typing import cast

import pytest
from benchmarks.gpu import larger_part, larger_prediction
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.tiny_scale import tiny

from tandem.engine.building.parts import EngineParts
from tandem.spec.errors import ConfigError, ModelError, RequestError


@pytest.mark.parametrize(
    "error",
    [ConfigError("no profile"), RequestError("too long"), ModelError("damaged"), ImportError("no")],
    ids=lambda error: type(error).__name__,
)
def test_whatever_the_simulator_refuses_is_a_note_beside_what_was_measured(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object) -> float:
        raise error

    monkeypatch.setattr(larger_prediction, "simulated_per_s", refused)
    scale, found = tiny(), Findings("gpu larger", "a command", {}, tmp_path / "larger.json")
    cell = scale.larger[0]
    parts = cast("EngineParts", None)  # which only the simulator looks at
    larger_part._add_simulated(cell, "stream", parts, 1, scale, 10.0, found)
    record = found.finish()
    assert record.rows == ()
    (note,) = record.notes
    assert note.endswith(f": stream: nothing was simulated: {error}")
