"""Sizes that the profile has not measured, beside what it says of them."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from tandem.bench.records import BenchRow
from tandem.probes.accelerator import ProbedAccelerator
from tandem.probes.effort import Effort
from tandem.probes.linear_cases import FLOAT16
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample
from tandem.profiling.measurements import AcceleratorMeasurements
from tandem.spec.dtype import DType

_ALLOWED_ERROR = 0.1
_EXACT = 1.0
_SIDE_STEP = 16  # tensor cores want multiples of it


def held_out_rows(
    card: AcceleratorMeasurements, probed: ProbedAccelerator, effort: Effort
) -> Iterator[BenchRow]:
    """What the profile interpolates, over what is measured now: copies each way, a product, decode
    attention and a prompt's, each between the two largest sizes of either kind.
    """
    size = _between(effort.link_bytes)
    side, rows = _between(effort.sides, _SIDE_STEP), _between(effort.card_rows)
    batch, prompt = (
        (_between(effort.batches), _between(effort.contexts)),
        (1, _between(effort.prompt_tokens)),
    )
    pages = effort.pages(DType.FLOAT16)
    samples: dict[str, Sample] = {
        f"{size} bytes to the device": _crossing(probed, size, to_device=True),
        f"{size} bytes from the device": _crossing(probed, size, to_device=False),
        f"product of {side} x {side} and {rows} rows": probed.products(FLOAT16, side, (rows,))[
            rows
        ],
        f"decode, {batch[0]} rows of {batch[1]} keys": probed.decoding(pages, (batch,))[batch],
        f"a prompt of {prompt[1]} tokens": probed.reading_prompts(pages, (prompt,))[prompt],
    }
    kind, kv = str(FLOAT16), str(DType.FLOAT16)
    expected_s = (
        card.h2d.pinned.at(size).seconds,
        card.d2h.pinned.at(size).seconds,
        next(t for t in card.linear if t.kind == kind).surface.at(side * side, rows).seconds,
        next(t for t in card.attention if t.kind == kv).surface.at(*batch).seconds,
        next(t for t in card.prompts if t.kind == kv).surface.at(*prompt).seconds,
    )
    found_s = median_seconds(samples, effort.rounds)
    ratios = [each / found_s[name] for name, each in zip(samples, expected_s, strict=True)]
    for name, ratio in zip(samples, ratios, strict=True):
        yield BenchRow(f"held out: {name}", card.name, "profile over measured", ratio, "", _EXACT)
    error = median(abs(each - 1) for each in ratios)
    yield BenchRow(
        "held out", card.name, "median error, profile", error, "ratio - 1", _ALLOWED_ERROR
    )


def _crossing(probed: ProbedAccelerator, size: int, *, to_device: bool) -> Sample:
    return probed.crossings((size,), to_device=to_device, pinned=True)[size]


def _between(sizes: Sequence[int], step: int = 1) -> int:
    """The geometric mean of the two largest, as a multiple of a step."""
    low, high = sizes[-2:]
    return round(math.sqrt(low * high) / step) * step
