"""A profile of a machine that is not there: round figures, so that times can be told by head."""

from dataclasses import replace

from tandem.profiling.measurements import (
    AcceleratorMeasurements,
    AtOnce,
    AttentionTimes,
    CodeRates,
    Contention,
    DiskMeasurements,
    HostMeasurements,
    LinearTimes,
    LinkDirection,
    MemoryRates,
    PromptTimes,
    StartTimes,
    ThreadPoint,
    ThreadRates,
)
from tandem.profiling.profile import Machine, Profile
from tandem.profiling.surface import Curve, Surface
from tandem.spec.dtype import DType

MACHINE = Machine("none", "Test CPU", (0, 1), 2)
KERNELS = "0123456789abcdef"
READ_BYTES_PER_S = 20e9
LINEAR_FLOPS_PER_S = 100e9
KEY_S = 200e-9
"""Of decode attention, per row and token of context."""
ELEMENTS, ROWS = (1e6, 16e6), (1.0, 8.0, 64.0, 512.0)
BATCHES, CONTEXTS = (1.0, 16.0), (64.0, 2048.0)
ATTENTION_START_S = 5e-6
CARD_KEY_S, CARD_ATTENTION_START_S = 20e-9, 2e-6
CARD_PAIRS_FLOPS_PER_S = 5e12
PROMPTS, PROMPT_TOKENS = (1.0, 4.0), (64.0, 512.0, 2048.0)
CONTENTION = (
    Contention("decode attention", "a copy", "memory", "copies in memory", 18e9, 12e9, 8e9, 5e9),
    # attention loses 6 GB/s of 18 and the link 2 of 12: what both get together is 22 of 30
    Contention("decode attention", "the link", "memory", "link", 18e9, 12e9, 12e9, 10e9),
    Contention("products", "the link", "cores", "link", 100e9, 100e9, 12e9, 12e9),
    # a disk takes a third of its own rate off attention, and a tenth of the products
    Contention("decode attention", "a disk", "memory", "disks", 18e9, 17e9, 3e9, 3e9),
    Contention("products", "a disk", "cores", "disks", 100e9, 90e9, 3e9, 3e9),
)

SWEEP_BESIDE_LINK = (
    ThreadPoint(1, ThreadRates(12e9, 10e9, 11e9), ThreadRates(10e9, 9.9e9, 9.5e9)),
    ThreadPoint(2, ThreadRates(20e9, 18e9, 19e9), ThreadRates(14e9, 12e9, 13e9)),
)
AT_ONCE = (
    AtOnce("attention", 18e9, 11e9),
    AtOnce("link both ways", 15e9, 8e9),
    AtOnce("disks", 3e9, 2.8e9),
)


def linear_s(elements: float, rows: float, element_bytes: float) -> float:
    """The slower of reading the weight and computing."""
    return max(
        elements * element_bytes / READ_BYTES_PER_S, 2 * elements * rows / LINEAR_FLOPS_PER_S
    )


def linear_times(kind: str, element_bytes: float) -> LinearTimes:
    rows = tuple(tuple(linear_s(e, r, element_bytes) for r in ROWS) for e in ELEMENTS)
    return LinearTimes(kind, Surface(ELEMENTS, ROWS, rows))


def attention_times(kind: str) -> AttentionTimes:
    seconds = tuple(tuple(ATTENTION_START_S + KEY_S * b * c for c in CONTEXTS) for b in BATCHES)
    return AttentionTimes(kind, 2048, Surface(BATCHES, CONTEXTS, seconds))


def card_attention(kind: str) -> AttentionTimes:
    seconds = tuple(
        tuple(CARD_ATTENTION_START_S + CARD_KEY_S * b * c for c in CONTEXTS) for b in BATCHES
    )
    return AttentionTimes(kind, 2048, Surface(BATCHES, CONTEXTS, seconds))


def prompt_times(kind: str) -> PromptTimes:
    """Of the shape 32/8/128."""
    flops = 32 * (4 * 128 + 5)
    seconds = tuple(
        tuple(n * t * (t + 1) / 2 * flops / CARD_PAIRS_FLOPS_PER_S for t in PROMPT_TOKENS)
        for n in PROMPTS
    )
    return PromptTimes(kind, flops, Surface(PROMPTS, PROMPT_TOKENS, seconds))


def host_measurements() -> HostMeasurements:
    return HostMeasurements(
        threads=2,
        memory=MemoryRates(READ_BYTES_PER_S, 10e9, 8e9),
        sweep=(
            ThreadPoint(1, ThreadRates(12e9, 10e9, 11e9), None),
            ThreadPoint(2, ThreadRates(20e9, 18e9, 19e9), None),
        ),
        linear=tuple(linear_times(dtype.value, dtype.size_bytes) for dtype in DType),
        heads="32/8/128",
        attention=tuple(attention_times(dtype.value) for dtype in DType),
        codes=(CodeRates("int8/64", 0.1e9, 30e9),),
        start=StartTimes(3e-6, 20e-6),
        contention=CONTENTION,
    )


def accelerator_measurements() -> AcceleratorMeasurements:
    sizes = (4096.0, 1e8)
    link = LinkDirection(
        Curve(sizes, (10e-6, 10e-6 + 1e8 / 20e9)), Curve(sizes, (20e-6, 1e8 / 5e9)), 15e9
    )
    return AcceleratorMeasurements(
        "Test card", 24 << 30, 500e9, 8e-6, 2e-6,
        (*(linear_times(dtype.value, 0.1) for dtype in DType), linear_times("int4/64", 0.05)),
        "32/8/128", tuple(card_attention(dtype.value) for dtype in DType),
        tuple(prompt_times(dtype.value) for dtype in DType),
        (CodeRates("int4/64", 5e9, 200e9), CodeRates("kv int4", 100e9, 300e9)), link, link,
    )  # fmt: skip


def profile(*, accelerator: bool = False) -> Profile:
    host = host_measurements()
    return Profile(
        machine=MACHINE,
        kernels=KERNELS,
        shapes=("linear: square",),
        measured_at="2026-01-02T03:04:05+00:00",
        duration_s=12.5,
        thorough=False,
        host=replace(host, sweep=SWEEP_BESIDE_LINK) if accelerator else host,
        accelerator=accelerator_measurements() if accelerator else None,
        disks=(DiskMeasurements("/data", 1e9, 3e9, "4 threads, 4 MiB at once", 2.5e9),),
        striping=None,
        at_once=AT_ONCE if accelerator else (AT_ONCE[0], AT_ONCE[2]),
        skipped=("accelerator and link: there is none",),
    )
