"""The bench model as files: the random weights that our engine makes, for peers to convert."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.host_model import LlamaShape, write_checkpoint
from tandem.spec.dtype import DType


@dataclass(frozen=True, slots=True)
class PeerModels:
    """Where the model lies in each engine's format; made once.

    Attributes:
        directory: of all of them.
        peer_python: of the peers' environment.
    """

    directory: Path
    peer_python: Path
    shape: LlamaShape

    def config(self, dtype: DType) -> Path:
        """A directory with `config.json` alone: random weights are made from it."""
        directory = self.directory / f"{dtype.value}-config"
        directory.mkdir(parents=True, exist_ok=True)
        self.shape.write(directory, dtype)
        return directory

    def gguf(self) -> Path:
        """A file for llama.cpp, matrices in float16."""
        convert = [str(self.peer_python), "-m", "benchmarks.peers.write_gguf"]
        return self._made(
            "float16.gguf", lambda file: _run([*convert, str(self._checkpoint()), str(file)])
        )

    def openvino(self, weights: str) -> Path:
        """A directory for OpenVINO; `weights` as optimum names their format."""
        export = [str(self.peer_python.with_name("optimum-cli")), "export", "openvino", "--model"]
        task = ["--task", "text-generation-with-past", "--weight-format", weights]
        return self._made(
            f"openvino-{weights}",
            lambda target: _run([*export, str(self._checkpoint()), *task, str(target)]),
        )

    def _checkpoint(self) -> Path:
        """A float16 checkpoint as the hub has them."""
        return self._made("float16", self._write_checkpoint)

    def _write_checkpoint(self, directory: Path) -> None:
        directory.mkdir()
        self.shape.write(directory, DType.FLOAT16)
        write_checkpoint(directory)

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        """`name` in the directory; renamed into place, so that what is there is whole."""
        place = self.directory / name
        if not place.exists():
            partial = self.directory / f"partial-{name}"
            self.directory.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.unlink(missing_ok=True)
            make(partial)
            partial.rename(place)
        return place


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
