"""A layer's matrices in one piece of memory, whatever each of them is kept as."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tandem.cost.weight_parts import weight_part_bytes
from tandem.models.weight_layout import Affine, LayerLayout, LayerShapes
from tandem.plan.program import Part
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_matrix_bytes, layer_weights
from tandem.spec.precision import Precision
from tandem.spec.weight_format import BITS, GROUPS, WeightFormat

FUSED = (("q", "k", "v"), ("output",), ("gate", "up"), ("down",))


@given(
    heads=st.integers(1, 3),
    kv_heads=st.integers(1, 2),
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
    heads: int,
    kv_heads: int,
    head_dim: int,
    inner: int,
    dtype: DType,
    formats: list[WeightFormat | None],
) -> None:
    spec = ModelSpec(
        "llama", 8, 128, 1, heads * kv_heads, kv_heads, head_dim, inner, 64, qkv_bias=True
    )
    chosen = zip(FUSED, formats, strict=True)
    quantized = {name: f for names, f in chosen if f is not None for name in names}
    shapes = LayerShapes(layer_weights(spec), getattr(torch, dtype.value), quantized)
    layout = LayerLayout(shapes)
    precision = Precision(dtype, dtype, dtype, quantized)
    assert layout.size_bytes == layer_matrix_bytes(spec, precision)
    found = {
        Part.KEYS_VALUES: layout.keys_values,
        Part.QUERIES: layout.queries,
        Part.PRE: layout.projections,
        Part.POST: layout.others,
    }
    sizes = {part: sum(end - first for first, end in found[part]) for part in found}
    assert sizes == weight_part_bytes(spec, precision, 0)

    memory = layout.allocate(torch.device("cpu"))
    modules = layout.modules(memory, layout.allocate_vectors(torch.device("cpu")))
    written = torch.zeros(len(memory), dtype=torch.bool)
    parts = torch.zeros(len(memory), dtype=torch.int8)
    for number, extents in ((1, layout.projections), (2, layout.others)):
        for first, end in extents:
            assert not parts[first:end].any()
            parts[first:end] = number
    made_by = torch.zeros(len(memory), dtype=torch.int8)
    for number, extents in ((1, layout.queries), (2, layout.keys_values)):
        for first, end in extents:
            assert not made_by[first:end].any()
            made_by[first:end] = number
    assert ((made_by > 0) == (parts == 1)).all()
    for number, names in ((1, ("q",)), (2, ("k", "v"))):
        for name in names:
            for tensor in tensors_of(modules[name]):
                start = tensor.data_ptr() - memory.data_ptr()
                assert (made_by[start : start + tensor.nbytes] == number).all()
    for name in ("qkv", "output", "gate_up", "down"):
        for tensor in tensors_of(modules[name]):
            start = tensor.data_ptr() - memory.data_ptr()
            assert start % tensor.itemsize == 0
            assert not written[start : start + tensor.nbytes].any()
            written[start : start + tensor.nbytes] = True
            read_by = 1 if name == "qkv" else 2
            assert (parts[start : start + tensor.nbytes] == read_by).all()
    assert written.all()
    rows = [modules[name].weight.data_ptr() for name in ("qkv", "q")]
    assert rows[0] == rows[1]


def tensors_of(map: Affine) -> tuple[torch.Tensor, ...]:
    kept = map.quantized
    return (map.weight,) if kept is None else (kept.q, kept.scales, kept.zeros)
