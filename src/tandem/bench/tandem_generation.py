"""This engine as a generator: the whole engine core on the host, without its text side."""

from pathlib import Path

from tandem.bench.core_generation import CoreGenerator
from tandem.bench.host_model import SEED
from tandem.engine.building.core_of import core_of
from tandem.engine.building.parts import build_parts
from tandem.plan.weights import disk_layers
from tandem.spec.config import EngineConfig

_CPU_MEMORY = "4GiB"
_MAX_MODEL_LEN = 1024
_MAX_BATCHED_TOKENS = 2048


class TandemGenerator(CoreGenerator):
    """Runs requests through `EngineCore`, as `tandem generate --accelerator none` does.

    Args:
        directory: holds a `config.json`; weights are `--load-format dummy`.
        cpu_memory, max_num_batched_tokens: see `EngineConfig`.
        spool_dir: where weights that do not fit there are written.

    Attributes:
        on_disk: number of layers that do not fit.
    """

    def __init__(
        self,
        directory: Path,
        max_rows: int,
        cpu_memory: str = _CPU_MEMORY,
        max_num_batched_tokens: int = _MAX_BATCHED_TOKENS,
        spool_dir: Path | None = None,
    ) -> None:
        parts = build_parts(
            EngineConfig(
                model=str(directory),
                accelerator="none",
                cpu_memory=cpu_memory,
                load_format="dummy",
                seed=SEED,
                max_model_len=_MAX_MODEL_LEN,
                max_num_seqs=max_rows,
                max_num_batched_tokens=max_num_batched_tokens,
                spool_dir=None if spool_dir is None else str(spool_dir),
            )
        )
        self.on_disk: int = len(disk_layers(parts.memory.plan.weights))
        super().__init__(core_of(parts))
