"""A layer's matrices in one piece of memory, whatever each of them is kept as."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tandem.models.weight_layout import LayerLayout, LayerShapes
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_matrix_bytes, layer_weights
from tandem.spec.precision import Precision
from tandem.spec.weight_format import BITS, GROUPS, WeightFormat

FUSED = (("q", "k", "v"), ("output",), ("gate", "up"), ("down",))


@given(
    heads=st.integers(1, 3),
    head_dim=st.sampled_from([128, 256]),
    inner=st.sampled_from([128, 384]),
    dtype=st.sampled_from(list(DType)),
    formats=st.lists(
        st.none() | st.builds(WeightFormat, st.sampled_from(BITS), st.sampled_from(GROUPS)),
        min_size=4,
        max_size=4,
    ),
)
def test_views_are_aligned_disjoint_and_cover_the_memory(
    heads: int, head_dim: int, inner: int, dtype: DType, formats: list[WeightFormat | None]
) -> None:
    spec = ModelSpec("llama", 8, 128, 1, heads, heads, head_dim, inner, 64, qkv_bias=True)
    chosen = zip(FUSED, formats, strict=True)
    quantized = {name: f for names, f in chosen if f is not None for name in names}
    shapes = LayerShapes(layer_weights(spec), getattr(torch, dtype.value), quantized)
    layout = LayerLayout(shapes)
    assert layout.size_bytes == layer_matrix_bytes(spec, Precision(dtype, dtype, dtype, quantized))

    memory = layout.allocate(torch.device("cpu"))
    modules = layout.modules(memory, layout.allocate_vectors(torch.device("cpu")))
    written = torch.zeros(len(memory), dtype=torch.bool)
    parts = torch.zeros(len(memory), dtype=torch.int8)
    for number, extents in ((1, layout.projections), (2, layout.others)):
        for first, end in extents:
            assert not parts[first:end].any()
            parts[first:end] = number
    for name in ("qkv", "output", "gate_up", "down"):
        kept = modules[name].quantized
        tensors = (modules[name].weight,) if kept is None else (kept.q, kept.scales, kept.zeros)
        for tensor in tensors:
            start = tensor.data_ptr() - memory.data_ptr()
            assert start % tensor.itemsize == 0
            assert not written[start : start + tensor.nbytes].any()
            written[start : start + tensor.nbytes] = True
            read_by = 1 if name == "qkv" else 2
            assert (parts[start : start + tensor.nbytes] == read_by).all()
    assert written.all()
    rows = [modules[name].weight.data_ptr() for name in ("qkv", "q")]
    assert rows[0] == rows[1]
