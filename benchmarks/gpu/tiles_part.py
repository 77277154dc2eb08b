"""How Triton's kernels are best cut on this GPU: what was guessed beside other sizes, in turns.

Every case times the usual tiles and, one at a time, other values of each size (`KNOBS`); after all
of them the best values together are timed once more against the usual ones, and written beside the
record if they are faster (`adopt_tiles` puts them where kernels look). On a CPU, in Triton's
interpreter, all of it runs and no figure means anything.
"""

import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from benchmarks.gpu.cases import Case, CaseError, run_cases
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.kernels_part import Call, Prompt, narrow_weight
from benchmarks.gpu.link_meter import LINK_TARGET
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.sizes import TileSizes

from tandem.bench.records import BenchRow
from tandem.kernels.link_copies import copy_runs, find_runs, gather_blocks
from tandem.kernels.pages import PageShape
from tandem.kernels.tiles import USUAL_TILES, TileSettings
from tandem.kernels.triton_support import TritonDevice, unit_of
from tandem.probes.kernel_cases import BLOCK_SIZE, HeadShape, Workload, make_layers
from tandem.probes.kernel_pages import code_pages, float_pages, held_dtype
from tandem.probes.timing import timed
from tandem.quant.quantize import quantize
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType
from tandem.spec.weight_format import WeightFormat

KNOBS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "decode": {
        "decode_key_bytes": (8 << 10, 32 << 10),
        "decode_stages": (1, 3, 4),
        "decode_warps": (2, 8),
    },
    "prefill": {
        "prefill_rows": (32, 128),
        "prefill_key_bytes": (8 << 10, 32 << 10),
        "prefill_stages": (1, 3),
        "prefill_warps": (2, 8),
    },
    "product": {
        "product_stages": (2, 4, 5),
        "product_warps": (2, 8),
    },
}
METRIC, TOGETHER = "time over the usual tiles", "the best together"
BEST = "best"
_WORTH = 0.98  # of the usual time: less is not worth another size
_LEAST_S = 1e-3  # of a sample


def measure_tiles(scale: Scale, limit: Deadline, found: Findings) -> None:
    """All kernels, then the best sizes together."""
    if scale.accelerator != "cuda":
        os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported
    sweep = _Sweep(scale, found)
    cases = sweep.cases()
    together: dict[str, Case] = {
        f"{TOGETHER}, {name}": partial(sweep.together, name) for name in cases
    }
    with torch.inference_mode():
        copies: dict[str, Case] = {"copies": sweep.copies}
        run_cases(
            {**copies, **{n: partial(sweep.alone, n) for n in cases}, **together}, limit, found
        )
    sweep.write_best()


class _Sweep:
    def __init__(self, scale: Scale, found: Findings) -> None:
        self._scale, self._found = scale, found
        self._sizes: TileSizes = scale.tiles
        self._probed = scale.probed()
        self._device = self._probed.device
        unit = unit_of(self._device) if self._device.type == "cuda" else TritonDevice(8, True)
        if unit is None:
            raise CaseError("Triton does not run here")
        self._unit = unit
        # the interpreter cannot multiply bfloat16
        own = scale.dtype if self._device.type == "cuda" else DType.FLOAT16
        self._dtype: torch.dtype = getattr(torch, own.value)

    def cases(self) -> dict[str, Callable[[TileSettings], Call]]:
        """What makes a call by some tiles, by the name of what it is."""
        plain = DType(str(self._dtype).removeprefix("torch."))
        made: dict[str, Callable[[TileSettings], Call]] = {}
        for heads in self._sizes.heads:
            for kv in (plain, *self._sizes.kv):
                for rows, keys in self._sizes.decode:
                    made[f"decode, {rows} x {keys}, {heads}, KV {kv}"] = partial(
                        self._decode, heads, kv, rows, keys
                    )
                if self._unit.has_dot:
                    name = f"prefill, {self._sizes.prompt}, {heads}, KV {kv}"
                    made[name] = partial(self._prefill, heads, kv)
        # products on matrix units are not cut by these sizes
        for outputs, inputs in () if self._unit.has_dot else self._sizes.matrices:
            for format in self._sizes.formats:
                for rows in self._sizes.rows:
                    name = f"product, {outputs} x {inputs}, {format}, {rows} rows"
                    made[name] = partial(self._product, outputs, inputs, format, rows)
        return made

    def alone(self, name: str, limit: Deadline) -> None:
        """Other values of each size, one at a time."""
        knobs = KNOBS[name.partition(",")[0]]
        changes = [{knob: value} for knob, values in knobs.items() for value in values]
        self._compare(name, {_text(change): change for change in changes}, limit)

    def together(self, name: str, limit: Deadline) -> None:
        """The best values of all cases."""
        kind = name.partition(",")[0]
        chosen = {k: v for k, v in best_values(self._found.rows).items() if k in KNOBS[kind]}
        if chosen:
            self._compare(name, {TOGETHER: chosen}, limit)

    def _compare(
        self, name: str, changes: Mapping[str, Mapping[str, int]], limit: Deadline
    ) -> None:
        calls: dict[str, Call] = {}
        make = self.cases()[name]
        for text, change in {"": {}, **changes}.items():
            call = make(replace(USUAL_TILES, **change))
            try:
                self._seconds(call, 1)  # compiles
            except Exception as error:  # noqa: BLE001 - whatever a compiler or a launch raises
                self._found.note(f"{name}, {text}: {type(error).__name__}: {error}"[:200])
                continue
            calls[text] = call
        if "" not in calls:
            raise CaseError("the usual tiles do not run")
        count = max(1, round(_LEAST_S / self._seconds(calls[""], 1)))
        samples: dict[str, list[float]] = defaultdict(list)
        for _ in limit.rounds(self._sizes.rounds):
            for text, call in calls.items():
                samples[text].append(self._seconds(call, count))
        usual = float(np.median(samples.pop("")))
        self._found.add(
            *(
                BenchRow(name, text, METRIC, float(np.median(times)) / usual, "ratio", 1.0)
                for text, times in samples.items()
            )
        )

    def _seconds(self, call: Call, count: int) -> float:
        def run() -> None:
            for number in range(count):
                call(number)
            self._probed.synchronize()

        self._probed.synchronize()
        return timed(run) / count

    # --- what is called -------------------------------------------------------------------------

    def _kernels(self, heads: HeadShape, kv: KVType, tiles: TileSettings) -> Any:
        from tandem.kernels.triton_kernels import TritonKernels

        bits = kv.bits if isinstance(kv, CodeType) else 0
        shape = PageShape(heads.kv_heads, BLOCK_SIZE, heads.head_dim, bits)
        unit = replace(self._unit, tiles=tiles)
        scale = heads.head_dim**-0.5
        return TritonKernels(self._device, heads.heads, shape, scale, 0.0, unit, self._dtype)

    def _pages(self, heads: HeadShape, count: int, kv: KVType) -> torch.Tensor:
        if isinstance(kv, CodeType):
            return code_pages(heads, count, kv).to(self._device)
        return float_pages(heads, count, held_dtype(kv)).to(self._device)

    def _decode(
        self, heads: HeadShape, kv: KVType, rows: int, keys: int, tiles: TileSettings
    ) -> Call:
        load = Workload("equal", (keys,) * rows)
        (case,) = make_layers(heads, load, load.num_blocks, self._dtype)
        kernels, pages = self._kernels(heads, kv, tiles), self._pages(heads, load.num_blocks, kv)
        plan, query = kernels.plan(case.attention), case.query.to(self._device)
        return lambda _: kernels.attend(query, pages, plan)

    def _prefill(self, heads: HeadShape, kv: KVType, tiles: TileSettings) -> Call:
        prompt = Prompt.of(self._sizes.prompt)
        kernels = self._kernels(heads, kv, tiles)
        pages = self._pages(heads, prompt.attention.block_table.size, kv)
        plan = kernels.plan(prompt.attention)
        query = torch.randn(prompt.tokens, heads.heads, heads.head_dim)
        query = query.to(self._device, self._dtype)
        return lambda _: kernels.attend(query, pages, plan)

    def _product(
        self, outputs: int, inputs: int, format: WeightFormat, rows: int, tiles: TileSettings
    ) -> Call:
        from tandem.kernels.triton_products import multiply

        plain = torch.randn(outputs, inputs, device=self._device)
        make = narrow_weight if format.floats else quantize
        weights = [make(plain, format) for _ in range(self._sizes.copies)]
        x = torch.randn(rows, inputs).to(self._device, self._dtype)
        unit = replace(self._unit, tiles=tiles)
        return lambda i: multiply(x, weights[i % len(weights)], None, unit)

    # --- the link -------------------------------------------------------------------------------

    def copies(self, limit: Deadline) -> None:
        """Scattered blocks to the host by copy engines and by a kernel, over their sizes."""
        ids = torch.arange(0, 2 * self._sizes.blocks, 2)
        for size in self._sizes.block_bytes:
            shape = (1, 2 * self._sizes.blocks, size // 8)
            there = torch.zeros(shape, dtype=torch.int64, device=self._device)
            here = torch.zeros(shape, dtype=torch.int64)
            seen, unpin = self._as_seen(here)
            runs, on_device = find_runs(ids.numpy(), ids.numpy()), ids.to(self._device)
            calls: dict[str, Call] = {
                "copy engines": lambda _, t=there, h=here, r=runs: copy_runs(t, h, r),
                "a kernel": lambda _, t=there, s=seen, i=on_device: gather_blocks(t, i, s, i),
            }
            for call in calls.values():
                self._seconds(call, 1)
            samples: dict[str, list[float]] = defaultdict(list)
            for _ in limit.rounds(self._sizes.rounds):
                for name, call in calls.items():
                    samples[name].append(self._seconds(call, 1))
            for name, times in samples.items():
                rate = len(ids) * size / float(np.median(times)) / 1e9
                self._found.add(BenchRow(_blocks_text(size), name, "rate", rate, "GB/s"))
            unpin()

    def _as_seen(self, here: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None]]:
        if self._device.type != "cuda":
            return here, lambda: None
        from tandem.devices.cuda.memory import as_seen_by, pin

        unpin = pin(here)
        return as_seen_by(self._device, here), unpin

    # --- what comes of it -----------------------------------------------------------------------

    def write_best(self) -> None:
        """Beside the record: sizes that are better, alone and together, and copies' crossing."""
        chosen = confirmed_values(self._found.rows)
        least = least_copy_bytes(self._found.rows, self._sizes.block_bytes)
        if least is not None and least != USUAL_TILES.least_copy_bytes:
            chosen["least_copy_bytes"] = least
        capability = "interpreter"
        if self._device.type == "cuda":
            from tandem.devices.cuda.device import compute_capability

            capability = "{}.{}".format(*compute_capability(self._device))
        told = {"capability": capability, "tiles": chosen}
        path = self._found.path.with_suffix(f".{BEST}.json")
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        self._found.note(f"compute capability {capability}: {_text(chosen) or 'the usual tiles'}")


def best_values(rows: Sequence[BenchRow]) -> dict[str, int]:
    """Of each size the value, if any, by which all of its cases take less time in the mean, and the
    least.
    """
    ratios: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in _of_metric(rows):
        knob, _, value = row.variant.partition("=")
        if value:
            ratios[knob, int(value)].append(row.value)
    # what did not run in some case is no choice
    cases = {name: max(len(r) for (k, _), r in ratios.items() if k == name) for name, _ in ratios}
    chosen: dict[str, tuple[float, int]] = {}
    for (knob, value), found in ratios.items():
        mean = _geometric_mean(found)
        if len(found) == cases[knob] and mean < min(_WORTH, chosen.get(knob, (1.0, 0))[0]):
            chosen[knob] = mean, value
    return {knob: value for knob, (_, value) in chosen.items()}


def confirmed_values(rows: Sequence[BenchRow]) -> dict[str, int]:
    """The best values of those kernels that are faster by all of theirs together."""
    together: dict[str, list[float]] = defaultdict(list)
    for row in _of_metric(rows):
        if row.variant == TOGETHER:
            together[row.case.partition(",")[0]].append(row.value)
    better = {kind for kind, found in together.items() if _geometric_mean(found) < _WORTH}
    return {
        knob: value
        for knob, value in best_values(rows).items()
        if any(knob in KNOBS[kind] for kind in better)
    }


def least_copy_bytes(rows: Sequence[BenchRow], sizes: Sequence[int]) -> int | None:
    """The least size from which on copy engines are as fast as a kernel; None: they never are, or
    not all were measured.
    """
    rates = {(row.case, row.variant): row.value for row in rows if row.metric == "rate"}
    engines = [rates.get((_blocks_text(size), "copy engines")) for size in sizes]
    kernel = [rates.get((_blocks_text(size), "a kernel")) for size in sizes]
    found: int | None = None
    for size, one, other in reversed(list(zip(sizes, engines, kernel, strict=True))):
        if one is None or other is None or one < other * LINK_TARGET:
            break
        found = size
    return found


def _of_metric(rows: Sequence[BenchRow]) -> Iterator[BenchRow]:
    return (row for row in rows if row.metric == METRIC)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _text(change: Mapping[str, int]) -> str:
    return ", ".join(f"{knob}={value}" for knob, value in change.items())


def _blocks_text(size: int) -> str:
    return f"scattered blocks of {size} bytes to the host"
