"""This engine as a generator: the whole engine core on the host, without its text side."""

import os
from collections.abc import Sequence
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
        directory: holds a `config.json`; weights are `--load-format dummy`, unless they are stored
            there.
        cpu_memory, max_num_batched_tokens: see `EngineConfig`.
        spool_dirs: where weights that do not fit there are written.
        stored: read the checkpoint in `directory`.
        copies: folders with copies of it.

    Attributes:
        on_disk: number of layers that do not fit.
    """

    def __init__(
        self,
        directory: Path,
        max_rows: int,
        cpu_memory: str = _CPU_MEMORY,
        max_num_batched_tokens: int = _MAX_BATCHED_TOKENS,
        spool_dirs: Sequence[Path] = (),
        *,
        stored: bool = False,
        copies: Sequence[Path] = (),
    ) -> None:
        parts = build_parts(
            EngineConfig(
                model=str(directory),
                accelerator="none",
                cpu_memory=cpu_memory,
                load_format="auto" if stored else "dummy",
                seed=SEED,
                max_model_len=_MAX_MODEL_LEN,
                max_num_seqs=max_rows,
                max_num_batched_tokens=max_num_batched_tokens,
                spool_dir=_paths(spool_dirs),
                disk_copies=_paths(copies),
            )
        )
        self.on_disk: int = len(disk_layers(parts.memory.plan.weights))
        self._weights = parts.assembled.machine.runner.weights
        super().__init__(core_of(parts))

    def bytes_read(self) -> tuple[int, ...]:
        """From disk since the start, of the checkpoint and of each copy; () if nothing is on it."""
        disk = self._weights.disk
        return () if disk is None or disk.reader is None else tuple(disk.reader.bytes_read)


def _paths(folders: Sequence[Path]) -> str | None:
    return os.pathsep.join(map(str, folders)) or None
