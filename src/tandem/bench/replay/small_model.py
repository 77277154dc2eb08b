"""A model in the place of a real one: as many layers, each in the same place, else tiny."""

import json
from pathlib import Path

from tandem.memory.page import KVPageSpec
from tandem.models.disk_weights import DiskPlacement
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.plan.sweep_layers import SweepChoice
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.machine import Machine
from tandem.spec.dtype import DType

VOCABULARY = 64
_HEADS, _HEAD_DIM = 2, 8


def small_model(
    folder: Path, num_layers: int, max_positions: int, layers: SweepChoice | None = None
) -> Model:
    """A Llama with random weights, always the same, in float32.

    Args:
        folder: of its own. layers: where they are; None: all on the accelerator.
    """
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _HEADS * _HEAD_DIM,
        "num_hidden_layers": num_layers,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": 1,
        "head_dim": _HEAD_DIM,
        "intermediate_size": 24,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": max_positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    disk = None
    if layers is not None and layers.usual.on_disk:
        disk = DiskPlacement(layers.usual.on_disk, "cached", (folder,))
    return load_model(folder, DType.FLOAT32, load_format="dummy", layers=layers, disk=disk)


def machine_of(
    model: Model, block_size: int, device_blocks: int, host_blocks: int, max_rows: int
) -> Machine:
    """What programs run on. Both tiers are host memory, and compiled kernels serve both."""
    page = KVPageSpec.of_model(model.spec, dtype=DType.FLOAT32, block_size=block_size)
    sizes = MachineSizes(page, device_blocks, host_blocks, max_rows)
    machine = build_machine(model, sizes, lambda tensor: tensor, host_only=True)
    machine.host_tasks = None  # handing over such small work would take most of the time
    return machine
