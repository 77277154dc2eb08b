"""A paced engine whose run is kept, to be executed again."""

from collections.abc import Sequence

from tandem.bench.replay.replay import Recorded
from tandem.engine.building.paced import PacedEngine
from tandem.spec.request import EngineRequest, RequestOutput


class Recording:
    """The engine's core, which notes what it is asked.

    Args:
        name: of the run, for people. engine: with a journal, or without one: then nothing is kept.
        num_layers: of its model.
    """

    def __init__(self, name: str, engine: PacedEngine, num_layers: int) -> None:
        self._name, self._engine, self._num_layers = name, engine, num_layers
        self._prompts: dict[str, tuple[int, ...]] = {}

    def add_request(self, request: EngineRequest) -> None:
        """As of the core."""
        self._prompts[request.request_id] = request.prompt_token_ids
        self._engine.core.add_request(request)

    def step(self) -> Sequence[RequestOutput]:
        """As of the core."""
        return self._engine.core.step()

    def has_work(self) -> bool:
        """As of the core."""
        return self._engine.core.has_work()

    def close(self) -> None:
        """As of the core."""
        self._engine.core.close()

    def pack(self) -> None:
        """Keep what there is in less memory; while no time is measured."""
        if self._engine.journal is not None:
            self._engine.journal.pack()

    def recorded(self) -> Recorded:
        """The run so far, of an engine that keeps a journal."""
        engine = self._engine
        assert engine.journal is not None, "this run is not kept"
        return Recorded(
            self._name, engine.memory.plan, self._num_layers, engine.journal, self._prompts
        )
