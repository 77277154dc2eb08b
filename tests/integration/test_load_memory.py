"""Weights are in memory once while they are loaded."""

import subprocess
import sys
from pathlib import Path

from safetensors.torch import save_file
from tests.docs.pages import environment

from tandem.bench.host_model import LlamaShape
from tandem.models.architecture import load_architecture
from tandem.models.checkpoint_loader import checkpoint_tensors
from tandem.models.load import load_model
from tandem.spec.dtype import DType

SHAPE = LlamaShape("small", 512, 4, 8, 8, 1408, 32_000)
MOST_BESIDE_BYTES = 24 << 20  # libraries' code and heap among it; the embedding alone has 31 MiB

PROGRAM = """
import sys
from pathlib import Path
from tandem.memory.peaks import read_host_memory
from tandem.memory.process_peak import ProcessPeak
from tandem.models.load import load_model

before = read_host_memory()
peak = ProcessPeak(before)
model = load_model(Path(sys.argv[1]))
print(peak.look(read_host_memory()) - before.rss_bytes - model.weights.size_bytes)
"""


def test_a_checkpoint_is_not_in_memory_twice(tmp_path: Path) -> None:
    spec = SHAPE.write(tmp_path, DType.BFLOAT16)
    weights = load_model(tmp_path, load_format="dummy").weights
    assert weights.size_bytes > 80 << 20
    tensors = checkpoint_tensors(weights, load_architecture(spec.architecture))
    save_file({name: t.clone() for name, t in tensors.items()}, tmp_path / "model.safetensors")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MOST_BESIDE_BYTES
