"""Compiles the Triton kernels for every generation of GPU that Tandem names, without a GPU.

Prints what each takes: registers of a thread, bytes that did not fit them (spilled), shared memory
of a program, against what the generation has. Exits with 1 if one does not compile, takes more, or
spills more than a few. It says nothing about speed.

    check_triton.py            everything, on all processors
    check_triton.py --quick    each kernel, for one generation
    check_triton.py --each     one kernel that uses the matrix units, if there are any, for each
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tandem.kernels.product_tiles import ProductCut, cut_groups
from tandem.kernels.tiles import tiles_for
from tandem.kernels.triton_append import append_codes, append_floats
from tandem.kernels.triton_code_attention import attend_codes
from tandem.kernels.triton_dequantize import dequantize_codes
from tandem.kernels.triton_expert_products import STAGES as EXPERT_STAGES
from tandem.kernels.triton_expert_products import expert_tile
from tandem.kernels.triton_experts import (
    ALIGNED_BYTES,
    multiply_expert_codes,
    multiply_expert_floats,
)
from tandem.kernels.triton_float_attention import attend_floats
from tandem.kernels.triton_group_attention import attend_groups
from tandem.kernels.triton_groups import multiply_groups
from tandem.kernels.triton_linear import multiply_codes
from tandem.kernels.triton_link import await_counter, raise_counter, receive_rows, send_rows
from tandem.kernels.triton_matrix_products import ROW_OUTPUTS, ROW_SPANS, ROW_WARPS
from tandem.kernels.triton_merge import merge_splits, merge_tiers
from tandem.kernels.triton_plan import (
    DECODE_SPLIT_KEYS,
    MAX_SPLITS,
    HeadShape,
    TileShape,
    decode_shape,
    prefill_shape,
    shape_over_bytes,
)
from tandem.kernels.triton_products import (
    DEQUANTIZED_SPANS,
    cut_product,
    most_rows_fused,
)
from tandem.kernels.triton_row import multiply_row
from tandem.kernels.triton_row_operations import (
    COLUMNS_AT_ONCE,
    GATED_ACTIVATIONS,
    HEADS_AT_ONCE,
)
from tandem.kernels.triton_rows import gate_rows, rotate_heads
from tandem.kernels.triton_support import FIRST_WITH_DOT, FIRST_WITH_E4M3, TritonDevice
from tandem.memory.quantized_page import QuantizedPage
from tandem.spec.weight_format import WeightFormat

# Shared memory of one program by compute capability (limits in the CUDA programming guide).
SHARED_KIB = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
HEADS = {
    "32/8/128": (8, 4, 128),
    "40/8/128": (8, 5, 128),  # Qwen3-14B's
    "32/32/128": (32, 1, 128),
    "32/8/64": (8, 4, 64),
    "32/32/80": (32, 1, 80),
    "32/32/96": (32, 1, 96),
    "8/4/256": (4, 2, 256),  # Gemma 2's, whose scores are bounded
}
BOUNDED = ("8/4/256",)
STORED = ("fp8", "int8", "int4")  # beside what queries are
QUERIES = ("fp16", "bf16", "fp32")
MOST_SPILLED = 512  # bytes of a thread, which the first cache holds for all threads of a program
_FP8 = WeightFormat(8, 128, floats=True)
TILE_ROWS = (8, 16, 32, 64, 128)  # of products on matrix units
CODE_BITS = {"int8": 8, "int4": 4}
BLOCK_SIZE = 64
_SIZES = ("inputs", "outputs", "groups", "size")  # multiples of 16
_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with all that is built into it; `constants` are in capitals, as in its signature."""

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, int]


def attention(label: str, query: str, stored: str, capability: int) -> Iterator[Case]:
    """Decode, and prefill where there are matrix units."""
    kv_heads, group, head_dim = HEADS[label]
    bits = CODE_BITS.get(stored, 0)
    page = QuantizedPage(bits, kv_heads, BLOCK_SIZE, head_dim) if bits else None
    elements = page.row_elements if page else head_dim
    heads = HeadShape(kv_heads, group, elements, _BYTES[query], bits)
    unit = device(capability)
    shapes = {"decode": decode_shape(heads, unit)}
    if unit.has_dot:
        shapes["prefill"] = prefill_shape(heads, unit.tiles)
    types = dict.fromkeys(("tile_row", "tile_token", "tile_count", "first", "end", "table"), "*i32")
    types |= {"q": f"*{query}", "pages": f"*{stored}" if stored == query else "*u8"}
    types |= {"pairs": "*fp16"}
    types |= {"out": "*fp32", "lse": "*fp32", "scale": "fp32", "soft_cap": "fp32"}
    types |= dict.fromkeys(("num_tokens", "table_width"), "i32")
    for name, shape in shapes.items():
        if stored == "fp8":
            shape = shape_over_bytes(shape, heads, unit)
        constants = _attention_constants(shape, heads, head_dim)
        constants["HAS_CAP"] = label in BOUNDED
        kernel, own = _attention_kernel(shape, page, unit)
        title = f"{name} {label}, {query} over {stored}"
        options = {"num_stages": shape.stages, "num_warps": shape.warps}
        yield Case(title, kernel, types, constants | own, options)


def _attention_kernel(
    shape: TileShape, page: QuantizedPage | None, unit: TritonDevice
) -> tuple[Any, dict[str, int]]:
    """With what only it has built in: see `TritonKernels`."""
    own: dict[str, int] = {"PAD_DIM": shape.pad_dim, "USE_DOT": unit.has_dot}
    if page is None:
        return attend_floats, own | {"HALVES": shape.halves, "HAS_E4M3": unit.has_e4m3}
    if shape.halves:
        return attend_groups, {"CODE_BITS": page.bits, "ASSEMBLY": True}
    own |= {"GROUP_SIZE": page.group_size, "ROW_ELEMENTS": page.row_elements}
    return attend_codes, own | {"CODE_BITS": page.bits}


def _attention_constants(shape: TileShape, heads: HeadShape, head_dim: int) -> dict[str, Any]:
    return {
        "KV_HEADS": heads.kv_heads,
        "GROUP": heads.group,
        "HEAD_DIM": head_dim,
        "BLOCK_SIZE": BLOCK_SIZE,
        "ROWS": shape.rows,
        "KEYS": shape.keys,
        "LEAST_KEYS": DECODE_SPLIT_KEYS,
    }


def others() -> Iterator[Case]:
    """Merging and appending."""
    merged = {"parts": "*fp32", "part_lse": "*fp32", "out": "*fp32", "lse": "*fp32"}
    merged |= {"num_rows": "i32", "splits": "i32"}
    constants = {"HEAD_DIM": 128, "PAD_DIM": 128, "PAD_SPLITS": MAX_SPLITS}
    yield Case("merging", merge_splits, merged, constants, {})
    tiers = dict.fromkeys(("here", "here_lse", "there", "there_lse"), "*fp32")
    tiers |= {"places": "*i32", "merged": "*bf16", "num_tokens": "i32"}
    constants = {"HEADS": 32, "HEAD_DIM": 128, "PAD_DIM": 128}
    yield Case("merging tiers", merge_tiers, tiers, constants, {"num_warps": 1})
    appended = {"k": "*bf16", "v": "*bf16", "slots": "*i64", "k_stride": "i32", "v_stride": "i32"}
    page: dict[str, Any] = {"BLOCK_SIZE": BLOCK_SIZE, "KV_HEADS": 8, "HEAD_DIM": 128}
    floats = page | {"PAD_ROW": 1024}
    for new, pages in (
        ("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "fp32"), ("bf16", "u8"), ("fp32", "u8"),
    ):  # fmt: skip
        types = appended | {"k": f"*{new}", "v": f"*{new}", "pages": f"*{pages}"}
        name = "fp8" if pages == "u8" else pages
        yield Case(f"append {new} as {name}", append_floats, types, floats, {})
    for new, bits in (("bf16", 4), ("bf16", 8), ("fp16", 4), ("fp32", 4)):
        codes = page | {"CODE_BITS": bits, "GROUP_SIZE": 64, "ROW_ELEMENTS": 128}
        types = appended | {"k": f"*{new}", "v": f"*{new}", "pages": "*u8", "pairs": "*fp16"}
        yield Case(f"append {new} as int{bits}", append_codes, types, codes, {"num_warps": 1})


def link() -> Iterator[Case]:
    """To the host and back while a step runs."""
    one = {"num_warps": 1}
    step: dict[str, str] = dict.fromkeys(("address", "waited_address", "limit_ns"), "i64")
    step |= {"numbers": "*i32", "layer": "i32", "waited": "*i64"}
    yield Case("raising the host's counter", raise_counter, step, {}, one)
    yield Case("awaiting the host", await_counter, step, {}, one)
    floats = ("query", "key", "value", "to_query", "to_key", "to_value")
    sent: dict[str, str] = dict.fromkeys(floats, "*bf16")
    sent |= dict.fromkeys(("numbers", "rows", "put"), "*i32")
    sent |= dict.fromkeys(("query_stride", "key_stride", "value_stride"), "i32")
    constants = {"QUERY": 4096, "KEY": 1024, "PAD_QUERY": 4096, "PAD_KEY": 1024}
    yield Case("rows to the host", send_rows, sent, constants, {})
    received = dict.fromkeys(("from_out", "from_lse", "out", "lse"), "*fp32")
    received |= {"numbers": "*i32"}
    constants = {"QUERY": 4096, "HEADS": 32, "PAD_QUERY": 4096, "PAD_HEADS": 32}
    yield Case("attention from the host", receive_rows, received, constants, {})


def rows(types: tuple[str, ...] = QUERIES) -> Iterator[Case]:
    """What is done to each token between products."""
    for type_ in types:
        turned = {"heads": f"*{type_}", "rotated": f"*{type_}", "stride": "i32"}
        turned |= {"cosines": "*fp32", "sines": "*fp32"}
        constants = {"HEADS": 40, "HEAD_DIM": 128, "HEADS_AT_ONCE": HEADS_AT_ONCE, "PAD_HALF": 64}
        yield Case(f"rotating {type_}", rotate_heads, turned, constants, {"num_warps": 1})
        gates: dict[str, str] = dict.fromkeys(("gate", "up", "gated"), f"*{type_}")
        gates |= dict.fromkeys(("gate_stride", "up_stride", "columns"), "i32")
        for name in sorted(GATED_ACTIVATIONS):
            built_in = {"IS_SILU": name == "silu", "COLUMNS_AT_ONCE": COLUMNS_AT_ONCE}
            yield Case(f"gating {type_} by {name}", gate_rows, gates, built_in, {})


def _scales(format: WeightFormat | None) -> str:
    return "*fp32" if format is not None and format.floats else "*fp16"


def products(
    query: str, format: WeightFormat, *, has_dot: bool, tile_rows: tuple[int, ...] = TILE_ROWS
) -> Iterator[Case]:
    """One row, and up to as many as are multiplied by codes; weights dequantized before."""
    types = {"x": f"*{query}", "codes": "*u8", "scales": _scales(format), "zeros": "*u8"}
    types |= {"bias": f"*{query}", "y": f"*{query}", "weight": f"*{query}"}
    types |= {"parts": "*fp32", "counters": "*i32"}
    numbers = ("rows", "outputs", "groups", "split_groups", "splits", "size")
    types |= dict.fromkeys(numbers, "i32")
    fixed: dict[str, Any] = {"GROUP": format.group, "CODE_BITS": format.bits}
    if has_dot and _BYTES[query] == 2:
        built_in = fixed | {"ASM": True, "HAS_BIAS": True}
        yield from _on_matrix_units(query, format, types, built_in, tile_rows)
    else:
        unit = TritonDevice(100, has_dot)
        most = most_rows_fused(_BYTES[query], unit)
        for rows in (most,) if has_dot else (1, most):  # on matrix units one row is a tile, too
            shape = cut_product(format, 4096, 4096, rows, _BYTES[query], unit)
            constants = fixed | {
                "ROWS": shape.rows,
                "OUTPUTS": shape.outputs,
                "STEP_GROUPS": shape.step_groups,
                "HAS_BIAS": True,
                "USE_DOT": has_dot,
            }
            title = f"{rows} rows, {query} by {format}"
            options = {"num_stages": shape.stages, "num_warps": shape.warps}
            yield Case(title, multiply_codes, types, constants, options)
    constants = fixed | {"SPANS": DEQUANTIZED_SPANS, "ASM": True}
    yield Case(f"{format} to {query}", dequantize_codes, types, constants, {})


def _on_matrix_units(
    query: str,
    format: WeightFormat,
    types: dict[str, str],
    fixed: dict[str, Any],
    tile_rows: tuple[int, ...],
) -> Iterator[Case]:
    """Every tile of so many rows once."""
    if not format.floats:
        constants = fixed | {"OUTPUTS": ROW_OUTPUTS, "SPANS": ROW_SPANS}
        title = f"a row, {query} by {format}"
        yield Case(title, multiply_row, types, constants, {"num_warps": ROW_WARPS})
    cuts = dict[ProductCut, None]()  # in their order
    for rows in tile_rows:
        for outputs in (4096, 16384):
            cut = cut_groups(format, outputs, 4096, rows, 100)
            cuts[replace(cut, splits=1, split_groups=1)] = None
    for cut in cuts:
        tile = cut.tile
        constants = fixed | {
            "ROWS": tile.rows,
            "OUTPUTS": tile.outputs,
            "STEP_GROUPS": cut.step_groups,
        }
        title = f"{tile.rows} x {tile.outputs}, {query} by {format}"
        options = {"num_stages": tile.stages, "num_warps": tile.warps}
        yield Case(title, multiply_groups, types, constants, options)


def experts(query: str, format: WeightFormat | None, *, has_dot: bool) -> Iterator[Case]:
    """Gates and ups, then results times shares, of few and of many places for each expert."""
    element_bytes = _BYTES[query]
    types = dict.fromkeys(("offsets", "order", "starts"), "*i64")
    types |= {"x": f"*{query}", "codes": "*u8", "scales": _scales(format), "zeros": "*u8"}
    types |= {"weights": f"*{query}", "shares": "*fp32"}
    types |= dict.fromkeys(("outputs", "groups", "inputs"), "i32")
    for places in (8, 1 << 14):
        tile = expert_tile(places, 128, element_bytes, TritonDevice(100, has_dot))
        constants = {"ROWS": tile.rows, "OUTPUTS": tile.outputs, "USE_DOT": has_dot}
        if format is None:
            kernel, unit = multiply_expert_floats, ALIGNED_BYTES // element_bytes
            constants |= {"DEPTH": tile.depth}
        else:
            kernel, unit = multiply_expert_codes, ALIGNED_BYTES
            steps = max(1, tile.depth // format.group)
            constants |= {"GROUP": format.group, "CODE_BITS": format.bits, "STEP_GROUPS": steps}
        for per_row, result in ((8, query), (1, "fp32")):
            title = f"experts, {places} places, {query} by {format or query} to {result}"
            own = constants | {"PER_ROW": per_row, "UNIT": unit, "HAS_SHARES": per_row == 1}
            options = {"num_stages": EXPERT_STAGES}
            yield Case(title, kernel, types | {"y": f"*{result}"}, own, options)


def compile_case(case: Case, capability: int) -> Any:
    """As at a launch with aligned memory, and the sizes that models have."""
    names = [parameter.name for parameter in case.kernel.params]
    types = {name: case.types.get(name, "constexpr") for name in names}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if types[name][0] == "*" or name in _SIZES
    }
    source = ASTSource(case.kernel, types, case.constants, aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=case.options)


def usage(cubin: bytes) -> dict[str, str]:
    """What the assembler reports, by name: REG, STACK and others."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fields = (field.split(":", 1) for field in text.split() if ":" in field)
    return {parts[0]: parts[1] for parts in fields}


def device(capability: int) -> TritonDevice:
    """One of a generation."""
    found = capability // 10, capability % 10
    return TritonDevice(100, found >= FIRST_WITH_DOT, tiles_for(found), found >= FIRST_WITH_E4M3)


def all_cases(capability: int) -> Iterator[Case]:
    """For one generation; other head shapes in two of them, formats that differ little in one."""
    dot, is_ampere = device(capability).has_dot, capability == 80
    yield from others()
    yield from link()
    yield from rows()
    for query in QUERIES:
        for stored in (query, *STORED):
            yield from attention("32/8/128", query, stored, capability)
    if capability in (80, 90):
        for label in HEADS:
            if label != "32/8/128":
                for stored in ("bf16", "int8", "int4"):
                    yield from attention(label, "bf16", stored, capability)
    for query in QUERIES:
        for format in (WeightFormat(4, 128), WeightFormat(8, 128), _FP8, WeightFormat(4, 32)):
            # float16 is decoded otherwise than bfloat16, and multiplied alike
            if query == "fp16" and capability not in (75, 80, 90):
                continue
            if format.group == 128 or (is_ampere and query == "bf16"):
                yield from products(query, format, has_dot=dot)
        for format in (None, WeightFormat(4, 128), WeightFormat(8, 128), _FP8):
            if query != "fp32" or format is None:
                yield from experts(query, format, has_dot=dot)


def quick_cases() -> Iterator[Case]:
    """Each kernel, and each way through it that memory's types decide."""
    yield from others()
    yield from link()
    yield from rows(("bf16",))
    for stored in ("bf16", "fp8", "int8"):
        yield next(attention("32/8/128", "bf16", stored, 80))
    yield from attention("32/8/128", "bf16", "int4", 80)
    for format in (WeightFormat(4, 128), _FP8):
        yield from products("bf16", format, has_dot=True, tile_rows=TILE_ROWS[:1])
    yield next(products("fp32", WeightFormat(4, 128), has_dot=True))
    for format in (None, WeightFormat(4, 128)):
        yield next(experts("bf16", format, has_dot=True))


def each_case() -> Iterator[tuple[Case, int]]:
    """One of attention for each generation: prompts where there are matrix units, else decode."""
    for capability in SHARED_KIB:
        *_, last = attention("32/8/128", "bf16", "bf16", capability)
        yield last, capability


def cases_of(option: str) -> list[tuple[Case, int]]:
    """What is compiled, and for which generation."""
    if option == "--quick":
        return [(case, 80) for case in quick_cases()]
    if option == "--each":
        return list(each_case())
    return [(case, capability) for capability in SHARED_KIB for case in all_cases(capability)]


def main() -> int:
    """Compile, print a line for each; the exit code."""
    option, failed = " ".join(sys.argv[1:]), 0
    numbers = range(len(cases_of(option)))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for line, fits in pool.map(partial(report_numbered, option), numbers):
            print(line, flush=True)
            failed += not fits
    return 1 if failed else 0


def report_numbered(option: str, number: int) -> tuple[str, bool]:
    """Of a case that another process found in the same order: a kernel cannot be sent."""
    return report(*cases_of(option)[number])


def report(case: Case, capability: int) -> tuple[str, bool]:
    """What a case takes, as a line; and whether it can run there, and well."""
    title, shared_kib = f"sm_{capability:<4} {case.name:40}", SHARED_KIB[capability]
    try:
        compiled = compile_case(case, capability)
    except Exception as error:  # noqa: BLE001 - whatever a compiler's passes raise
        return f"{title} FAILED: {type(error).__name__}: {error}", False
    took, shared = usage(compiled.asm["cubin"]), compiled.metadata.shared
    registers, spilled = int(took["REG"]), int(took["STACK"])
    problem = ""
    if shared > shared_kib << 10:
        problem = ": TOO MUCH"
    elif spilled > MOST_SPILLED:
        problem = ": SPILLS TOO MUCH"
    text = f"{registers:>3} registers, {spilled:>4} bytes spilled, {shared / 1024:5.1f}"
    return f"{title} {text} of {shared_kib} KiB shared{problem}", not problem


if __name__ == "__main__":
    sys.exit(main())
