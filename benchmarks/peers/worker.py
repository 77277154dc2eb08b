"""`python -m benchmarks.peers.worker ENGINE MODEL`: one engine behind the line protocol."""

import sys
from pathlib import Path

from benchmarks.peers.line_protocol import serve

from tandem.bench.generation import Generator

MAX_BATCH = 32


def load(engine: str, model: Path) -> Generator:
    """Load `model` into `engine`; each import is there in that engine's environment only."""
    match engine:
        case "tandem":
            from tandem.bench.tandem_generation import TandemGenerator

            return TandemGenerator(model, MAX_BATCH)
        case "transformers":
            from tandem.bench.transformers_generation import TransformersGenerator

            return TransformersGenerator(model)
        case "llama.cpp":
            from benchmarks.peers.llama_cpp_generation import LlamaCppGenerator

            return LlamaCppGenerator(model)
        case "openvino":
            from benchmarks.peers.openvino_generation import OpenVinoGenerator

            return OpenVinoGenerator(model)
        case _:
            raise ValueError(f"unknown engine '{engine}'")


if __name__ == "__main__":
    serve(lambda: load(sys.argv[1], Path(sys.argv[2])))
