"""Who attends in the kernel benchmark: this library, and torch in its best and its naive form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tandem.kernels.native_attention import NativeBatch, paged_attention
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape
from tandem.plan.binding import TierAttention
from tandem.probes.kernel_cases import HeadShape, LayerCase, Workload, dense_rows
from tandem.probes.timing import Sample, timed


def inner_loop(
    pool: NativePool, few: HeadShape, attention: TierAttention, pages: Tensor, own: PageShape
) -> Callable[[], float]:
    """Keys/s of the kernel on data in a core's caches: a `loop_case` and pages of shape `own`."""
    batch = NativeBatch.from_binding(attention, own, few.heads, pool.num_threads)
    query = torch.randn(len(pages), few.heads, few.head_dim)
    keys = batch.plan.total_keys
    return lambda: keys / timed(lambda: paged_attention(pool, query, pages, batch, few.scale))


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """One layer's decode step in torch's own layout.

    Attributes:
        query: [requests, heads, head_dim].
        dense: contiguous K and V `[kv_heads, tokens, head_dim]` of each request.
    """

    query: Tensor
    dense: tuple[tuple[Tensor, Tensor], ...]


def dense_layers(
    shape: HeadShape, load: Workload, pages: Tensor, layers: Sequence[LayerCase]
) -> list[DenseLayer]:
    """The same queries over as much of the same memory."""
    return [
        DenseLayer(layer.query, dense_rows(shape, load, pages, i)) for i, layer in enumerate(layers)
    ]


def torch_forms(
    shape: HeadShape, load: Workload, layers: Sequence[DenseLayer]
) -> dict[str, Sample]:
    """Ways to do it well with torch; which is best depends on the batch."""
    group = shape.heads // shape.kv_heads

    def per_request(layer: DenseLayer, dtype: torch.dtype) -> None:
        for query, (k, v) in zip(layer.query, layer.dense, strict=True):
            folded = query.view(1, shape.kv_heads, group, shape.head_dim).to(dtype)
            k, v = k[None].to(dtype), v[None].to(dtype)
            scaled_dot_product_attention(folded, k, v, scale=shape.scale)

    def form(dtype: torch.dtype) -> Sample:
        return lambda i: timed(lambda: per_request(layers[i % len(layers)], dtype))

    own = layers[0].query.dtype
    forms: dict[str, Sample] = {"folded per request": form(own)}
    if own != torch.float32:  # where torch has no fast 16-bit product, this is its best
        forms["widened to float32 per request"] = form(torch.float32)
    if len(set(load.lengths)) == 1:
        size = (len(load.lengths), shape.kv_heads, load.lengths[0], shape.head_dim)

        def batched(layer: DenseLayer) -> None:
            base = layer.dense[0][0]
            # The requests' K and V lie one after another: two batches over the same memory.
            flat = base.as_strided((2 * base.numel() * size[0],), (1,))
            k, v = flat.view(2, *size)
            folded = layer.query.view(size[0], shape.kv_heads, group, shape.head_dim)
            scaled_dot_product_attention(folded, k, v, scale=shape.scale)

        forms["folded in one batch"] = lambda i: timed(lambda: batched(layers[i % len(layers)]))
    return forms


def torch_naive(shape: HeadShape, layers: Sequence[DenseLayer]) -> Sample:
    """The way the documentation shows: torch expands the KV heads itself."""

    def attend(layer: DenseLayer) -> None:
        for query, (k, v) in zip(layer.query, layer.dense, strict=True):
            heads = query[None, :, None]
            scaled_dot_product_attention(
                heads, k[None], v[None], scale=shape.scale, enable_gqa=True
            )

    return lambda i: timed(lambda: attend(layers[i % len(layers)]))
