"""An engine with two decoding requests on the accelerator and two on the host, for strategies."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.engines import TestEngine, toy_engine
from tests.support.setups import Setup

from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

LAYERS = 4
PROMPT = 20
SETUP = Setup(
    strategy="ride-along",
    device_blocks=16,
    host_blocks=32,
    block_size=16,
    max_host_seqs=2,
    max_device_seqs=2,
    max_cohorts=2,
    max_cohort_rows=1,
    interposition_budget=LAYERS,
    prefix_caching=False,
)


@contextmanager
def half_on_host() -> Iterator[TestEngine]:
    """The engine, when all four decode."""
    with toy_engine(SETUP, LAYERS) as engine:
        for number in range(4):
            params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
            prompt = tuple(range(1, PROMPT + 1))
            engine.core.add_request(EngineRequest(str(number), prompt, params))
        while not all_decode(engine):
            engine.core.step()
        yield engine


def all_decode(engine: TestEngine) -> bool:
    """Whether the first four do."""
    rows = engine.scheduler.rows
    owned = rows.owned()
    return len(owned) == 4 and bool((rows.known[owned] > PROMPT).all())
