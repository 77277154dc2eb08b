"""Reproducible random weights at any real shape, for measuring without a checkpoint.

A tensor's values depend on its name, its shape and the seed alone. Large tensors repeat one tile
of random numbers, which fills them at the speed of memory; its length is prime, so that rows of
up to that many differ.
"""

import hashlib
import math

import torch
from torch import Tensor

from tandem.models.checkpoint_loader import Progress
from tandem.models.weights import Parameter, Weights
from tandem.quant.quantize import quantize, quantize_into
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.model import ModelSpec

_TILE_ELEMENTS = 262_139
_TILE_GROUPS = {32: 8191, 64: 4093, 128: 2039}  # by their elements: primes, likewise


def fill_dummy_weights(
    weights: Weights, spec: ModelSpec, seed: int = 0, progress: Progress | None = None
) -> None:
    """Fill `weights` so that activations keep a sane scale through all layers.

    Norms are the identity, biases small; a linear map has deviation 1 / sqrt(inputs), and those
    that add to the residual are damped by the number of such additions. Matrices without memory
    are left out.
    """
    parameters = [p for p in weights.parameters() if not p.tensor.is_meta]
    total_bytes, done_bytes = sum(p.size_bytes for p in parameters), 0
    for parameter in parameters:
        fill_dummy(parameter, spec, seed)
        done_bytes += parameter.size_bytes
        if progress is not None:
            progress(done_bytes, total_bytes, _full_name(parameter))


def fill_dummy(parameter: Parameter, spec: ModelSpec, seed: int) -> None:
    """One weight of those that `fill_dummy_weights` makes."""
    module, _, part = parameter.name.rpartition(".")
    if module.endswith("norm"):
        parameter.tensor.fill_(1.0 - spec.norm_offset if part == "weight" else 0.0)
        return
    count = math.prod(parameter.shape)
    tile = _tile(_full_name(parameter), seed, count)
    tile *= _deviation(module, part, parameter.shape, spec)
    if parameter.quantized is None:
        _repeat_into(parameter.tensor.view(-1), tile.to(parameter.tensor))
    else:
        _quantize_repeated(parameter.quantized, tile)


def _deviation(module: str, part: str, shape: tuple[int, ...], spec: ModelSpec) -> float:
    if part == "bias":
        return 0.02
    if module.rpartition(".")[2] in ("output", "down", "fc1"):
        return 1.0 / math.sqrt(shape[-1] * 2 * spec.num_layers)
    return 1.0 / math.sqrt(shape[-1])


def _tile(name: str, seed: int, elements: int) -> Tensor:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    # 63 bits: what torch's generator takes without complaint.
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    return torch.randn(min(elements, _TILE_ELEMENTS), generator=generator)


def _quantize_repeated(target: QuantizedWeight, tile: Tensor) -> None:
    """Of what is larger than the tile, as many groups as it has are rounded, and then repeated:
    rounding takes some 30 ns of a core for each weight, so half an hour for 70 billion.
    """
    tile, group = tile.to(target.q.device), target.format.group
    if target.outputs * target.inputs <= tile.numel():
        quantize_into(target, tile.view(target.outputs, target.inputs))
        return
    count = _TILE_GROUPS[group]
    rounded = quantize(tile[: count * group].view(1, -1), target.format)
    _repeat_into(target.q.view(-1), rounded.q.view(-1))
    _repeat_into(target.scales.view(-1), rounded.scales.view(-1))
    _repeat_into(target.zeros.view(-1), rounded.zeros.view(-1))


def _repeat_into(flat: Tensor, tile: Tensor) -> None:
    repeats, rest = divmod(flat.numel(), tile.numel())
    whole = repeats * tile.numel()
    flat[:whole].view(repeats, tile.numel()).copy_(tile.expand(repeats, -1))
    flat[whole:].copy_(tile[:rest])


def _full_name(parameter: Parameter) -> str:
    if parameter.layer is None:
        return parameter.name
    return f"layers.{parameter.layer}.{parameter.name}"
