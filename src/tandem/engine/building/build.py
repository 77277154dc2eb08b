"""Build an engine core."""

from tandem.engine.building.core_of import core_of
from tandem.engine.building.parts import build_parts, closed_unless_done
from tandem.engine.building.tracing import traced
from tandem.engine.core import EngineCore
from tandem.spec.config import EngineConfig
from tandem.spec.progress import Progress, no_progress


def build_engine_core(
    config: EngineConfig, progress: Progress = no_progress, *, check: bool = False
) -> EngineCore:
    """Load the model and build the engine around it.

    Args:
        check: verify conservation after every event, and warm the emulated accelerator up too, so
            that growth can be told (tests). CUDA is always warmed up.

    Raises:
        TandemError: the model cannot be loaded, a flag is wrong, or memory does not suffice.
    """
    with traced(config) as trace:
        parts = build_parts(config, progress, () if trace is None else (trace.executed,))
        kind = parts.target.choice.kind
        warm = kind == "cuda" or (check and kind == "emulated")
        with closed_unless_done(parts):
            if warm:
                parts.run_largest_steps()
            return core_of(parts, check=check, warm=warm, trace=trace)
