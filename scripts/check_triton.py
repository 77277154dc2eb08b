"""Compiles the Triton kernels for every generation of GPU that Tandem names, without a GPU.

Prints what each takes: registers of a thread, bytes that did not fit them (spilled), shared memory
of a program, against what the generation has. Exits with 1 if one does not compile or takes more.
It says nothing about speed.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tandem.kernels.triton_append import append_codes, append_floats
from tandem.kernels.triton_attention import attend_tiles, merge_splits, merge_tiers
from tandem.kernels.triton_expert_products import STAGES as EXPERT_STAGES
from tandem.kernels.triton_expert_products import expert_tile
from tandem.kernels.triton_experts import (
    ALIGNED_BYTES,
    multiply_expert_codes,
    multiply_expert_floats,
)
from tandem.kernels.triton_kernels import STAGES
from tandem.kernels.triton_linear import dequantize_codes, multiply_codes
from tandem.kernels.triton_plan import (
    DECODE_SPLIT_KEYS,
    MAX_SPLITS,
    HeadShape,
    TileShape,
    decode_shape,
    prefill_shape,
)
from tandem.kernels.triton_products import (
    DEQUANTIZED_BYTES,
    cut_product,
    most_rows_fused,
)
from tandem.kernels.triton_products import STAGES as PRODUCT_STAGES
from tandem.kernels.triton_support import FIRST_WITH_DOT, TritonDevice
from tandem.memory.quantized_page import QuantizedPage
from tandem.spec.weight_format import WeightFormat

# Shared memory of one program by compute capability (limits in the CUDA programming guide).
SHARED_KIB = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
HEADS = {"32/8/128": (8, 4, 128), "32/32/128": (32, 1, 128), "8/4/256": (4, 2, 256)}
TYPES = (
    ("fp16", "fp16"), ("bf16", "bf16"), ("fp32", "fp32"), ("fp16", "fp8"), ("bf16", "fp8"),
    ("bf16", "int8"), ("bf16", "int4"),
)  # fmt: skip
CODE_BITS = {"int8": 8, "int4": 4}
BLOCK_SIZE = 64
_SIZES = ("inputs", "outputs", "groups")  # multiples of 16
_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with all that is built into it; `constants` are in capitals, as in its signature."""

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, int]


def attention(label: str, query: str, stored: str, *, has_dot: bool) -> Iterator[Case]:
    """Decode, and prefill where there are matrix units."""
    kv_heads, group, head_dim = HEADS[label]
    bits = CODE_BITS.get(stored, 0)
    page = QuantizedPage(bits, kv_heads, BLOCK_SIZE, head_dim) if bits else None
    heads = HeadShape(kv_heads, group, page.row_elements if page else head_dim, _BYTES[query])
    shapes = {"decode": decode_shape(heads, TritonDevice(100, has_dot))}
    if has_dot:
        shapes["prefill"] = prefill_shape(heads)
    types = dict.fromkeys(("tile_row", "tile_token", "tile_count", "first", "end", "table"), "*i32")
    types |= {"q": f"*{query}", "pages": f"*{stored}" if stored == query else "*u8"}
    types |= {"pairs": "*fp16"}
    types |= {"out": "*fp32", "lse": "*fp32", "scale": "fp32", "soft_cap": "fp32"}
    types |= dict.fromkeys(("num_tokens", "table_width"), "i32")
    for name, shape in shapes.items():
        constants = _attention_constants(shape, heads, head_dim, bits, page)
        title = f"{name} {label}, {query} over {stored}"
        options = {"num_stages": STAGES}
        yield Case(title, attend_tiles, types, constants | {"USE_DOT": has_dot}, options)


def _attention_constants(
    shape: TileShape, heads: HeadShape, head_dim: int, bits: int, page: QuantizedPage | None
) -> dict[str, Any]:
    return {
        "KV_HEADS": heads.kv_heads,
        "GROUP": heads.group,
        "HEAD_DIM": head_dim,
        "PAD_DIM": shape.pad_dim,
        "BLOCK_SIZE": BLOCK_SIZE,
        "CODE_BITS": bits,
        "GROUP_SIZE": page.group_size if page else 1,
        "ROW_ELEMENTS": page.row_elements if page else 1,
        "ROWS": shape.rows,
        "KEYS": shape.keys,
        "LEAST_KEYS": DECODE_SPLIT_KEYS,
        "HAS_CAP": False,
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
    yield Case("append bf16", append_floats, appended | {"pages": "*bf16"}, floats, {})
    yield Case("append fp8", append_floats, appended | {"pages": "*u8"}, floats, {})
    codes = page | {"CODE_BITS": 4, "GROUP_SIZE": 64, "ROW_ELEMENTS": 128}
    types = appended | {"pages": "*u8", "pairs": "*fp16"}
    yield Case("append int4", append_codes, types, codes, {"num_warps": 1})


def products(query: str, format: WeightFormat, *, has_dot: bool) -> Iterator[Case]:
    """One row, and as many as are multiplied by codes; weights dequantized before."""
    types = {"x": f"*{query}", "codes": "*u8", "scales": "*fp16", "zeros": "*u8"}
    types |= {"bias": f"*{query}", "y": f"*{query}", "weight": f"*{query}"}
    types |= dict.fromkeys(("rows", "outputs", "groups", "split_groups"), "i32")
    fixed: dict[str, Any] = {"GROUP": format.group, "CODE_BITS": format.bits}
    unit = TritonDevice(100, has_dot)
    for rows in (1, most_rows_fused(_BYTES[query], unit)):
        shape = cut_product(format, 4096, 4096, rows, _BYTES[query], unit)
        constants = fixed | {
            "ROWS": shape.rows,
            "OUTPUTS": shape.outputs,
            "STEP_GROUPS": shape.step_groups,
            "HAS_BIAS": True,
            "USE_DOT": has_dot,
        }
        title = f"{rows} rows, {query} by {format}"
        yield Case(title, multiply_codes, types, constants, {"num_stages": PRODUCT_STAGES})
    constants = fixed | {"BYTES": DEQUANTIZED_BYTES}
    yield Case(f"{format} to {query}", dequantize_codes, types, constants, {})


def experts(query: str, format: WeightFormat | None, *, has_dot: bool) -> Iterator[Case]:
    """Gates and ups, then results times shares, of few and of many places for each expert."""
    element_bytes = _BYTES[query]
    types = dict.fromkeys(("offsets", "order", "starts"), "*i64")
    types |= {"x": f"*{query}", "codes": "*u8", "scales": "*fp16", "zeros": "*u8"}
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


def all_cases(capability: int) -> Iterator[Case]:
    """For one generation; the head shapes and formats that differ little, for one of them only."""
    has_dot, is_ampere = capability >= FIRST_WITH_DOT[0] * 10 + FIRST_WITH_DOT[1], capability == 80
    yield from others()
    for label in HEADS:
        for query, stored in TYPES:
            if label == "32/8/128" or (is_ampere and query == stored == "bf16"):
                yield from attention(label, query, stored, has_dot=has_dot)
    for query in ("fp16", "bf16", "fp32"):
        for format in (WeightFormat(4, 128), WeightFormat(8, 128), WeightFormat(4, 32)):
            if format.group == 128 or (is_ampere and query == "bf16"):
                yield from products(query, format, has_dot=has_dot)
        for format in (None, WeightFormat(4, 128), WeightFormat(8, 128)):
            if query != "fp32" or format is None:
                yield from experts(query, format, has_dot=has_dot)


def quick_cases() -> Iterator[Case]:
    """Each kernel, and each way through it that memory's types decide."""
    yield from others()
    for stored in ("bf16", "fp8", "int4"):
        yield next(attention("32/8/128", "bf16", stored, has_dot=True))
    yield from products("bf16", WeightFormat(4, 128), has_dot=True)
    for format in (None, WeightFormat(4, 128)):
        yield next(experts("bf16", format, has_dot=True))


def main() -> int:
    """Compile all, print a line for each; the exit code. `--quick`: a few, for one generation."""
    quick = sys.argv[1:] == ["--quick"]
    failed = 0
    for capability in (80,) if quick else SHARED_KIB:
        for case in quick_cases() if quick else all_cases(capability):
            failed += not report(case, capability, SHARED_KIB[capability])
    return 1 if failed else 0


def report(case: Case, capability: int, shared_kib: int) -> bool:
    """Print what a case takes; False if it cannot run there."""
    title = f"sm_{capability:<4} {case.name:40}"
    try:
        compiled = compile_case(case, capability)
    except Exception as error:  # noqa: BLE001 - whatever a compiler's passes raise
        print(f"{title} FAILED: {type(error).__name__}: {error}", flush=True)
        return False
    took, shared = usage(compiled.asm["cubin"]), compiled.metadata.shared
    fits = shared <= shared_kib << 10
    registers, spilled = took.get("REG", "?"), took.get("STACK", "?")
    shared_text = f"{shared / 1024:5.1f} of {shared_kib} KiB shared"
    print(
        f"{title} {registers:>3} registers, {spilled:>4} bytes spilled, {shared_text}"
        f"{'' if fits else ': TOO MUCH'}",
        flush=True,
    )
    return fits


if __name__ == "__main__":
    sys.exit(main())
