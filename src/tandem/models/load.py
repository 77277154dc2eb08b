"""From a model directory to a `Model` ready to run."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from tandem.devices.heap import give_back_freed
from tandem.models.architecture import load_architecture
from tandem.models.checkpoint import Checkpoint, read_checkpoint
from tandem.models.checkpoint_loader import Progress, load_checkpoint
from tandem.models.config import read_model_spec
from tandem.models.disk_weights import DiskPlacement, Pin
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.host_layers import host_layers
from tandem.models.model import Model
from tandem.models.quantized_checkpoint import read_stored_quantization, stored_formats
from tandem.models.weights import Weights, allocate_weights, torch_dtype
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import EmbeddingHome
from tandem.quant.formats.stored_weight import StoredQuantization
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool
    from tandem.models.native_stages import NativeStages

LoadFormat = Literal["auto", "dummy"]


def load_model(
    directory: Path,
    precision: Precision | DType | None = None,
    device: torch.device | str = "cpu",
    load_format: LoadFormat = "auto",
    seed: int = 0,
    progress: Progress | None = None,
    pool: "NativePool | None" = None,
    layers: SweepChoice | None = None,
    pin: Pin | None = None,
    disk: DiskPlacement | None = None,
    max_model_len: int | None = None,
    embedding: EmbeddingHome = "resident",
    *,
    resident_quantized: bool = True,
) -> Model:
    """Load the model in `directory`.

    Args:
        directory: holds `config.json` and, unless `load_format` is dummy, safetensors files.
        precision: of weights and activations, one type for both or each its own; None for the
            checkpoint's, and its quantization.
        device: where the maths is done, and the weights lie but for streamed layers.
        load_format: `auto` reads the checkpoint; `dummy` makes random weights from the config.
        seed: of dummy weights.
        progress: called after each tensor.
        pool: of the compiled kernels, which then do the CPU's maths, with float32 activations.
        layers: those that stay in host memory, and come to the device or are computed there.
        pin: makes host memory known to the device.
        disk: layers that are read from files when they are used; those that `layers` does not
            bring to the device need `pool`.
        max_model_len: longest sequence; where rotations depend on it, see `ModelSpec.for_length`.
        embedding: where token embeddings lie that are not the head as well.
        resident_quantized: whether layers all of which is on `device` are quantized as the others.

    Raises:
        ModelError: a missing, damaged or unsupported model.
    """
    spec = read_model_spec(directory).for_length(max_model_len)
    # The files are looked at before any large allocation, so that mistakes show at once.
    stored = read_checkpoint(directory) if load_format == "auto" else None
    quantization = None if stored is None else read_stored_quantization(directory)
    if not isinstance(precision, Precision):
        quantized = {} if stored is None else stored_formats(directory, spec)
        precision = replace(Precision.uniform(precision or spec.dtype), quantized=quantized)
    layers = layers or SweepChoice()
    weights = allocate_weights(
        spec,
        torch_dtype(precision.weights),
        torch.device(device),
        layers.usual,
        pin,
        disk,
        precision.quantized,
        layers.experts,
        embedding,
        resident_quantized=resident_quantized,
        columns=layers.cpu_columns,
        attention_maps=layers.cpu_attention_maps,
    )
    if stored is None:
        _make_up(weights, spec, seed, progress)
    else:
        _read(weights, spec, stored, quantization, progress)
    give_back_freed()  # of conversions
    weights.divide()
    weights.prepare()
    return _with_stages(spec, weights, precision, torch.device(device), pool, layers)


def _make_up(weights: Weights, spec: ModelSpec, seed: int, progress: Progress | None) -> None:
    fill_dummy_weights(weights, spec, seed, progress)
    if weights.disk is not None:
        from tandem.models.place_on_disk import open_dummy

        open_dummy(weights.disk, spec, seed)


def _read(
    weights: Weights,
    spec: ModelSpec,
    stored: Checkpoint,
    quantization: StoredQuantization | None,
    progress: Progress | None,
) -> None:
    architecture = load_architecture(spec.architecture)
    load_checkpoint(weights, architecture, stored, progress, quantization)
    if weights.disk is not None:
        from tandem.models.place_on_disk import open_stored

        open_stored(weights.disk, architecture, stored, quantization)


def _with_stages(
    spec: ModelSpec,
    weights: Weights,
    precision: Precision,
    device: torch.device,
    pool: "NativePool | None",
    layers: SweepChoice,
) -> Model:
    """The model over filled weights, with what computes it on the CPU."""
    dtype, int8 = torch_dtype(precision.activations), precision.int8_activations
    native = None
    if device.type == "cpu":
        native = native_stages(spec, weights, pool, int8_activations=int8)
    host = host_layers(
        spec,
        weights,
        layers.ever_on_cpu,
        dtype,
        pool,
        layers.mlps_ever_on_cpu,
        int8_activations=int8,
    )
    return Model(spec, weights, dtype, native, host)


def native_stages(
    spec: ModelSpec,
    weights: Weights,
    pool: "NativePool | None",
    *,
    int8_activations: bool = False,
) -> "NativeStages | None":
    """The model's stages on `pool`, if there is one."""
    if pool is None:
        return None
    from tandem.models.native_stages import NativeStages

    return NativeStages(spec, weights, pool, int8_activations=int8_activations)
