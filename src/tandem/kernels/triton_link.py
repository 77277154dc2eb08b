"""Rows of a step that the host attends to, to host memory and back, as Triton kernels: launched
within a graph, they wait for the host without any thread of it (contract 2).

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false
# pyright: reportUnknownVariableType=false

_GAVE_UP = tl.constexpr(-1)  # in place of the nanoseconds that a step has waited


@triton.jit
def _copy_row(source, target, place, row, stride, ELEMENTS: tl.constexpr, PAD: tl.constexpr):
    """Row `row` of `source` to place `place` of `target`."""
    element = tl.arange(0, PAD)
    is_used = element < ELEMENTS
    values = tl.load(source + row * stride + element, mask=is_used)
    tl.store(target + place * ELEMENTS + element, values, mask=is_used)


@triton.jit
def _copy_fresh_row(source, target, row, ELEMENTS: tl.constexpr, PAD: tl.constexpr):
    """Row `row`, from where it lies and not from a cache, to the same place."""
    element = tl.arange(0, PAD)
    is_used = element < ELEMENTS
    values = tl.load(source + row * ELEMENTS + element, mask=is_used, cache_modifier=".cv")
    tl.store(target + row * ELEMENTS + element, values, mask=is_used)


@triton.jit
def send_rows(
    query,  # [tokens, QUERY]; a token's elements contiguous
    key,  # [tokens, KEY]
    value,
    numbers,  # int32: see `host_link`
    rows,  # int32 [places]; each place's token
    put,  # int32 [places]; the same, of keys and values
    to_query,  # in host memory: [places, QUERY]
    to_key,
    to_value,
    query_stride,  # elements from token to token
    key_stride,
    value_stride,
    QUERY: tl.constexpr,
    KEY: tl.constexpr,
    PAD_QUERY: tl.constexpr,  # powers of two
    PAD_KEY: tl.constexpr,
):
    """Grid: [places]. As many tokens' queries, keys and values as `numbers` says."""
    place = tl.program_id(0)
    to = place.to(tl.int64)
    if place < tl.load(numbers + 1):
        row = tl.load(rows + place).to(tl.int64)
        _copy_row(query, to_query, to, row, query_stride, QUERY, PAD_QUERY)
    if place < tl.load(numbers + 3):
        row = tl.load(put + place).to(tl.int64)
        _copy_row(key, to_key, to, row, key_stride, KEY, PAD_KEY)
        _copy_row(value, to_value, to, row, value_stride, KEY, PAD_KEY)


@triton.jit
def receive_rows(
    from_out,  # in host memory: float32 [places, QUERY]
    from_lse,  # float32 [places, HEADS]
    numbers,
    out,  # as `from_out`
    lse,
    QUERY: tl.constexpr,
    HEADS: tl.constexpr,
    PAD_QUERY: tl.constexpr,
    PAD_HEADS: tl.constexpr,
):
    """Grid: [places]. The host writes there anew in every layer, beside running kernels."""
    place = tl.program_id(0)
    if place < tl.load(numbers + 1):
        row = place.to(tl.int64)
        _copy_fresh_row(from_out, out, row, QUERY, PAD_QUERY)
        _copy_fresh_row(from_lse, lse, row, HEADS, PAD_HEADS)


@triton.jit(do_not_specialize=["address", "layer"])
def raise_counter(
    address,  # int64; of a counter in host memory
    numbers,
    layer,
):
    """Grid: [1]. To the step's value of the layer, behind all that was written before."""
    value = tl.load(numbers) + layer + 1
    tl.inline_asm_elementwise(
        "{ fence.acq_rel.sys; st.relaxed.sys.global.u32 [$1], $2; mov.u32 $0, $2; }",
        "=r,l,r", [address, value], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def _looked_at(address):
    """What a counter in host memory is at now."""
    return tl.inline_asm_elementwise(
        "ld.acquire.sys.global.u32 $0, [$1];",
        "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def _now_ns(after):
    """The device's clock in nanoseconds, read behind what gave `after`."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,r", [after], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit(do_not_specialize=["address", "waited_address", "layer", "limit_ns"])
def await_counter(
    address,  # int64; of a counter that the host raises
    waited_address,  # int64; in host memory: int64 [step's places], nanoseconds waited so far
    numbers,
    waited,  # int64 [1]; the same, of the step
    layer,
    limit_ns,
):
    """Grid: [1]. Stands until the counter has the step's value of the layer, on the circle of 32
    bits, and no longer than the limit; tells how long all layers have stood, or that it gave
    up: then none that comes after waits again, in this step or the next ones.
    """
    value = tl.load(numbers) + layer + 1
    before = tl.load(waited)
    begun = _now_ns(value)
    current = _looked_at(address)
    may_wait = before >= 0
    while (current - value < 0) & may_wait:
        current = _looked_at(address)
        may_wait = _now_ns(current) - begun < limit_ns
    total = tl.where(layer == 0, before * 0, before) + _now_ns(current) - begun
    total = tl.where((before < 0) | (current - value < 0), before * 0 + _GAVE_UP, total)
    tl.store(waited, total)
    place = waited_address + tl.load(numbers + 2).to(tl.int64) * 8
    tl.inline_asm_elementwise(
        "{ st.relaxed.sys.global.u64 [$1], $2; mov.u64 $0, $2; }",
        "=l,l,l", [place, total], dtype=tl.int64, is_pure=False, pack=1,
    )  # fmt: skip
