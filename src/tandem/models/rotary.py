"""Rotary position embedding, computed in float32 (RoFormer; Llama 3.1's scaling)."""

import math

import torch
from torch import Tensor

from tandem.spec.model import RopeSpec


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> Tensor:
    """Radians per position of each rotated pair: float32 [head_dim / 2] on the CPU."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    return _llama3_scaled(rope, frequencies) if rope.kind == "llama3" else frequencies


def _llama3_scaled(rope: RopeSpec, frequencies: Tensor) -> Tensor:
    """Slow rotations (long wavelengths) are divided by `factor`, the middle ones blended."""
    wavelengths = 2 * math.pi / frequencies
    longest = rope.original_max_positions / rope.low_freq_factor
    shortest = rope.original_max_positions / rope.high_freq_factor
    share = (rope.original_max_positions / wavelengths - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    slowed = frequencies / rope.factor
    # The same order of operations as the reference, so that float32 agrees to the last bit.
    blended = (1 - share) * slowed + share * frequencies
    scaled = torch.where(wavelengths > longest, slowed, frequencies)
    middle = (wavelengths >= shortest) & (wavelengths <= longest)
    return torch.where(middle, blended, scaled)


def rotation_of(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines of `positions` [T]: two float32 [T, 1, head_dim].

    The first half of the sines is negated, which spares `rotate` a negation per layer.
    """
    angles = positions.to(torch.float32)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None]


def rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate `heads` [T, N, head_dim]: element i pairs with i + head_dim / 2."""
    cos, sin = rotation
    wide = heads.float()
    swapped = wide.roll(heads.shape[-1] // 2, -1)
    return (wide * cos).addcmul_(swapped, sin).to(heads.dtype)
