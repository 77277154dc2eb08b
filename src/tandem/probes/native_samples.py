"""The compiled kernels under the clock: decode attention, linear maps, and plain reading.

Import this module only if `native.available()`.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tandem.kernels.native_attention import NativeBatch, paged_attention
from tandem.kernels.native_linear import Activation, LinearEnd, NativeLinear, linear_into
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape
from tandem.probes.kernel_cases import HeadShape, LayerCase
from tandem.probes.linear_cases import MatrixShape
from tandem.probes.timing import Sample, timed


def attending(
    pool: NativePool,
    shape: HeadShape,
    pages: Tensor,
    layers: Sequence[LayerCase],
    own: PageShape,
) -> Sample:
    """Decode attention on the pages as they lie; `own` is their shape."""
    batches = [
        NativeBatch.from_binding(layer.attention, own, shape.heads, pool.num_threads)
        for layer in layers
    ]

    def sample(i: int) -> float:
        layer, batch = layers[i % len(layers)], batches[i % len(layers)]
        return timed(lambda: paged_attention(pool, layer.query, pages, batch, shape.scale))

    return sample


def multiplying(
    pool: NativePool,
    turns: Iterator[NativeLinear],
    shape: MatrixShape,
    x: Tensor,  # float32 [rows, inputs]
    *,
    int8_activations: bool = False,
) -> Sample:
    """A linear map of `x`, gated if the shape is.

    Args:
        turns: weights without end, shared by all samples of them: none begins with those that the
            sample before has left in a cache.
    """
    end, activation, outputs = LinearEnd.STORE, Activation.NONE, shape.outputs
    if shape.gated:
        end, activation, outputs = LinearEnd.GATED, Activation.SILU, shape.outputs // 2
    y = torch.empty(len(x), outputs)

    def sample(_: int) -> float:
        weight = next(turns)
        return timed(
            lambda: linear_into(
                y, pool, weight, x, end, activation, int8_activations=int8_activations
            )
        )

    return sample


def reading(pool: NativePool, pages: Tensor, size_bytes: int) -> Sample:
    """The pool's threads read as many bytes, and do nothing else."""
    flat = pages.view(-1)
    step = min(size_bytes // pages.element_size(), len(flat))
    chunks = [flat[i : i + step] for i in range(0, len(flat) - step + 1, step)]
    return lambda i: pool.read_seconds(chunks[i % len(chunks)])
