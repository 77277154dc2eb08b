"""What the library compressed-tensors packs, with which such checkpoints are published, loads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.parity.published_checkpoint import write
from tests.parity.published_formats import Parts, Published
from tests.parity.quantized_weights import CASE, MIXTURE
from tests.parity.tiny_models import Case
from torch import Tensor

from tandem.models.architecture import load_architecture
from tandem.models.checkpoint_loader import checkpoint_parameters
from tandem.models.load import load_model
from tandem.spec.dtype import DType
from tandem.spec.precision import Precision

quantization = pytest.importorskip("compressed_tensors.quantization")
helpers = pytest.importorskip("compressed_tensors.quantization.utils.helpers")
compressors = pytest.importorskip("compressed_tensors.compressors")


def published(layout: str, **weights: Any) -> Published:
    """By the library: its configuration, its scales, its packing, and its way back."""
    args = quantization.QuantizationArgs(**weights)
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=args, format=layout)
    config = quantization.QuantizationConfig(
        config_groups={"group_0": scheme}, format=layout, ignore=["lm_head"]
    )
    compressor: Any = compressors.BaseCompressor.get_value_from_registry(layout)

    def pack(weight: Tensor) -> tuple[Parts, Tensor]:
        low, high = extremes(weight, args)
        scale, zero = helpers.calculate_qparams(low, high, args)
        # the type of a 16-bit model's scales
        state = {"weight": weight, "weight_scale": scale.bfloat16(), "weight_zero_point": zero}
        packed = compressor.compress(state, scheme)
        wide = {**packed, "weight_scale": packed["weight_scale"].float()}
        return dict(packed), compressor.decompress(wide, scheme)["weight"]

    name = "-".join([layout, *(f"{v}" for v in weights.values())])
    return Published(name, {"quant_method": "compressed-tensors", **config.to_dict()}, pack)


def extremes(weight: Tensor, args: Any) -> tuple[Tensor, Tensor]:
    """Of each group that has a scale."""
    if args.strategy == "tensor":
        return weight.amin().view(1), weight.amax().view(1)
    if args.strategy == "block":
        rows, columns = args.block_structure
        blocks = weight.unflatten(0, (-1, rows)).unflatten(2, (-1, columns))
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    groups = weight.unflatten(1, (-1, args.group_size or weight.shape[1]))
    return groups.amin(2), groups.amax(2)


INT4 = {"num_bits": 4, "type": "int"}
INT8 = {"num_bits": 8, "type": "int"}
FLOAT = {"num_bits": 8, "type": "float", "symmetric": True}
EVEN, UNEVEN = {"symmetric": True}, {"symmetric": False}
TENSOR, CHANNEL = {"strategy": "tensor"}, {"strategy": "channel"}
BLOCK = {"strategy": "block", "block_structure": [64, 32]}


def groups(size: int) -> dict[str, Any]:
    return {"strategy": "group", "group_size": size}


@pytest.mark.parametrize(
    ("case", "theirs"),
    [
        (CASE, published("pack-quantized", **INT4, **EVEN, **groups(128))),
        (CASE, published("pack-quantized", **INT4, **UNEVEN, **groups(32))),
        (CASE, published("pack-quantized", **INT8, **EVEN, **CHANNEL)),
        (CASE, published("int-quantized", **INT8, **EVEN, **CHANNEL)),
        (CASE, published("int-quantized", **INT8, **UNEVEN, **CHANNEL)),
        (CASE, published("int-quantized", **INT8, **EVEN, **TENSOR)),
        (CASE, published("naive-quantized", **INT8, **EVEN, **groups(64))),
        (CASE, published("float-quantized", **FLOAT, **TENSOR)),
        (CASE, published("float-quantized", **FLOAT, **CHANNEL)),
        (CASE, published("float-quantized", **FLOAT, **BLOCK)),
        (MIXTURE, published("pack-quantized", **INT4, **UNEVEN, **groups(64))),
        (MIXTURE, published("float-quantized", **FLOAT, **CHANNEL)),
    ],
    ids=lambda value: getattr(value, "id", None),
)
def test_numbers_are_those_of_the_library(case: Case, theirs: Published, tmp_path: Path) -> None:
    written = write(tmp_path, theirs, case=case)
    for precision in (DType.FLOAT32, Precision.uniform(DType.FLOAT32)):
        model = load_model(tmp_path, precision)
        found = checkpoint_parameters(model.weights, load_architecture(model.spec.architecture))
        for name, weight in written.weights.items():
            parameter = found[f"{name}.weight"]
            kept = parameter.quantized
            assert (kept is None) == ("float" in theirs.id or isinstance(precision, Precision))
            held = parameter.tensor if kept is None else kept.dequantize()
            assert torch.equal(held, weight), name
