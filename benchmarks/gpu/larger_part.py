"""Models whose weights do not fit: each way of having the rest in host memory, beside its chain and
beside accelerate.
"""

from collections.abc import Callable
from contextlib import closing
from functools import partial

from benchmarks.gpu.cases import Case, run_cases
from benchmarks.gpu.cells import LargerCell
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import ModelFolder, config_for
from benchmarks.gpu.peer import Offloading
from benchmarks.gpu.scale import CODE_MATHS, Scale

from tandem.bench.chain import ChainRates, chain_s
from tandem.bench.core_generation import CoreGenerator
from tandem.bench.generation import Generator
from tandem.bench.host_case import HostCase
from tandem.bench.limits import read_probe
from tandem.bench.records import row_of_samples
from tandem.engine.building.core_of import core_of
from tandem.engine.building.parts import build_parts
from tandem.probes.rounds import median_seconds
from tandem.probes.torch_accelerator import TorchAccelerator
from tandem.spec.config import HostLayers
from tandem.spec.units import format_size

WAYS: tuple[HostLayers, ...] = ("stream", "cpu", "mlp", "auto")
PEER = "transformers, accelerate"
_PROMPT_TOKENS = 32
_PROBE_BYTES = 256 << 20


def measure_larger(cell: LargerCell, scale: Scale, limit: Deadline, found: Findings) -> None:
    """One cell: every way, then the peer."""
    rates = _rates(scale)
    with ModelFolder(cell.shape, scale.dtype) as model:

        def way(name: HostLayers, share: Deadline) -> None:
            _measure_way(cell, name, scale, model, rates, share, found)

        def peer(share: Deadline) -> None:
            _measure_peer(cell, scale, model, share, found)

        cases: dict[str, Case] = {name: partial(way, name) for name in WAYS}
        run_cases(cases | ({PEER: peer} if cell.peer else {}), limit, found)


def _measure_way(
    cell: LargerCell,
    way: str,
    scale: Scale,
    model: ModelFolder,
    rates: ChainRates,
    limit: Deadline,
    found: Findings,
) -> None:
    options = {
        "host_layers": way,
        "strategy": "gpu-only",
        "max_num_seqs": max(cell.batches),
        "max_model_len": _PROMPT_TOKENS + scale.larger_tokens,
        # room in host memory for all weights; KV stays with the accelerator
        "cpu_memory": "auto",
    }
    parts = build_parts(config_for(scale, model.path, cell.memory_bytes, options))
    if scale.accelerator == "cuda":
        parts.run_largest_steps()
    plan = parts.memory.plan
    with closing(CoreGenerator(core_of(parts))) as generator:
        for batch in cell.batches:
            chain = chain_s(plan, model.spec, scale.dtype, rates, batch)
            bound = batch / chain
            _measure(cell, way, generator, batch, scale, model, bound, limit, found)


def _measure_peer(
    cell: LargerCell, scale: Scale, model: ModelFolder, limit: Deadline, found: Findings
) -> None:
    peer = Offloading(model.path, cell.memory_bytes)
    for batch in cell.batches:
        _measure(cell, PEER, peer, batch, scale, model, None, limit, found)


def _measure(
    cell: LargerCell,
    name: str,
    generator: Generator,
    batch: int,
    scale: Scale,
    model: ModelFolder,
    bound: float | None,
    limit: Deadline,
    found: Findings,
) -> None:
    case = HostCase(batch, _PROMPT_TOKENS, scale.larger_tokens)
    prompts = case.prompts(0, model.spec.vocab_size)
    generator.generate(prompts, 2)  # a first time
    samples = [
        generator.generate(prompts, case.new_tokens).decode_tokens_per_s
        for _ in limit.rounds(scale.rounds)
    ]
    found.add(
        row_of_samples(
            f"{_case(cell, scale)}, batch {batch}", name, "decode throughput", samples, "tokens/s",
            bound,
        )
    )  # fmt: skip


def _case(cell: LargerCell, scale: Scale) -> str:
    return f"{cell.shape.name}, {scale.dtype}, {format_size(cell.memory_bytes)} of device memory"


def _rates(scale: Scale) -> ChainRates:
    """As probed in this process: copies of the device, its link, and the host's reading."""
    probed = TorchAccelerator(scale.probed(), CODE_MATHS)
    size = min(_PROBE_BYTES, probed.memory_bytes // 8)
    link = probed.crossings((size,), to_device=True, pinned=True)[size]
    found_s = median_seconds({"copy": probed.copying(size), "link": link}, 3)
    read: Callable[[], float] = read_probe()
    return ChainRates(2 * size / found_s["copy"], size / found_s["link"], max(read(), read()))
