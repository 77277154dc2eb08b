"""Who takes part: how each engine is started, and what its figures are held against."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.line_protocol import Worker
from benchmarks.peers.models import PeerModels

from tandem.spec.dtype import DType

OURS = ("tandem float16", "tandem bfloat16")
LLAMA_CPP = "llama.cpp f16"
_PROJECT_PYTHON = Path(sys.executable)


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine with one format of the weights.

    Attributes:
        backend: as `worker.py` knows it.
        dtype: of the weights, for the bound; None where no bound of ours counts their bytes.
        in_project: runs in the project's environment, not the peers'.
        model: makes the files if need be.
    """

    name: str
    backend: str
    dtype: DType | None
    in_project: bool
    model: Callable[[PeerModels], Path]

    def start(self, models: PeerModels) -> Worker:
        """A process that loads it."""
        python = _PROJECT_PYTHON if self.in_project else models.peer_python
        command = [str(python), "-m", "benchmarks.peers.worker", self.backend]
        return Worker(self.name, [*command, str(self.model(models))], {"HF_HUB_OFFLINE": "1"})


def all_engines() -> tuple[Engine, ...]:
    """Ours first."""
    half, bfloat, single = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
    return (
        Engine(OURS[0], "tandem", half, True, lambda models: models.config(half)),
        Engine(OURS[1], "tandem", bfloat, True, lambda models: models.config(bfloat)),
        Engine(LLAMA_CPP, "llama.cpp", half, False, PeerModels.gguf),
        Engine("OpenVINO int8", "openvino", None, False, lambda models: models.openvino("int8")),
        Engine("OpenVINO fp16", "openvino", half, False, lambda models: models.openvino("fp16")),
        Engine("transformers fp32", "transformers", single, True, lambda m: m.config(single)),
        Engine("transformers bf16", "transformers", bfloat, True, lambda m: m.config(bfloat)),
    )
