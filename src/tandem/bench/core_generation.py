"""Any engine core as a generator."""

import itertools

from tandem.bench.generation import Generated, Prompts, Stamps
from tandem.engine.core import EngineCore
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams


class CoreGenerator:
    """Runs requests through an engine core, without its text side."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._numbers = itertools.count()

    def generate(self, prompts: Prompts, new_tokens: int) -> Generated:
        """See `Generator`."""
        params = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        stamps = Stamps()
        found: dict[str, list[int]] = {f"bench-{next(self._numbers)}": [] for _ in prompts}
        for name, prompt in zip(found, prompts, strict=True):
            self._core.add_request(EngineRequest(name, tuple(prompt), params))
        complete = 0
        while self._core.has_work():
            for output in self._core.step():
                found[output.request_id] += output.token_ids
            shortest = min(map(len, found.values()))
            if shortest > complete:
                complete = shortest
                stamps.stamp()
        return stamps.result(list(found.values()))

    def close(self) -> None:
        """Free the engine's memory."""
        self._core.close()
