"""Rotary position embedding, in float32 (RoFormer; YaRN; LongRoPE; Llama 3.1's scaling)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.models.triton_unit import triton_unit
from tandem.spec.model import RopeSpec

# Cosines and signed sines, see `rotation_of`.
Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Rotary:
    """One rotary embedding: float32 [head_dim / 2] radians per position, and a factor."""

    frequencies: Tensor
    amplitude: float

    @staticmethod
    def of(rope: RopeSpec, head_dim: int, device: torch.device) -> "Rotary":
        """The tables of `rope`, on `device`."""
        return Rotary(inverse_frequencies(rope, head_dim).to(device), rope.amplitude)


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> Tensor:
    """Radians per position of each rotated pair: float32 [head_dim / 2] on the CPU."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    periods = rope.theta**exponents
    if rope.kind == "longrope":
        return 1.0 / (torch.tensor(rope.divisors, dtype=torch.float32) * periods)
    if rope.kind == "yarn":
        return _yarn_blended(rope, periods)
    frequencies = 1.0 / periods
    if rope.kind == "linear":
        return frequencies / rope.factor
    return _llama3_scaled(rope, frequencies) if rope.kind == "llama3" else frequencies


def _yarn_blended(rope: RopeSpec, periods: Tensor) -> Tensor:
    """Pairs that turn often over the original positions stay, slow ones are divided by `factor`."""
    pairs = len(periods)

    def pair_that_turns(times: float) -> float:
        span = rope.original_max_positions / (times * 2 * math.pi)
        return pairs * math.log(span) / math.log(rope.theta)

    low, high = pair_that_turns(rope.beta_fast), pair_that_turns(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    if low == high:
        high += 0.001
    ramp = (torch.arange(pairs, dtype=torch.float32) - low) / (high - low)
    stays = 1 - ramp.clamp(0, 1)
    # The same order of operations as the reference, so that float32 agrees to the last bit.
    return 1.0 / (rope.factor * periods) * (1 - stays) + 1.0 / periods * stays


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


def rotations_of(ropes: Sequence[Rotary], positions: Tensor) -> tuple[Rotation, ...]:
    """The rotation of `positions` [T] by each embedding."""
    return tuple(rotation_of(positions, rope.frequencies, rope.amplitude) for rope in ropes)


def rotation_of(positions: Tensor, frequencies: Tensor, amplitude: float = 1.0) -> Rotation:
    """Cosines and signed sines of `positions` [T]: two float32 [T, 1, head_dim].

    The first half of the sines is negated, which spares `rotate` a negation per layer.
    """
    angles = positions.to(torch.float32)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    if amplitude != 1.0:
        cos, sin = cos * amplitude, sin * amplitude
    return torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None]


def rotate(heads: Tensor, rotation: Rotation) -> Tensor:
    """Rotate `heads` [T, N, head_dim]: element i pairs with i + head_dim / 2."""
    cos, sin = rotation
    if triton_unit(heads) is not None and heads.shape[0]:
        from tandem.kernels.triton_row_operations import rotated

        return rotated(heads, cos, sin)
    wide = heads.float()
    swapped = wide.roll(heads.shape[-1] // 2, -1)
    return (wide * cos).addcmul_(swapped, sin).to(heads.dtype)
