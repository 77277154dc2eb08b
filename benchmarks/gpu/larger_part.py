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
from benchmarks.gpu.gain import median_error, ratio_row
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
from tandem.engine.building.parts import EngineParts, build_parts
from tandem.probes.rounds import median_seconds
from tandem.probes.torch_accelerator import TorchAccelerator
from tandem.spec.config import HostLayers
from tandem.spec.errors import TandemError
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

        def errors(share: Deadline) -> None:
            del share
            _add_errors(cell, scale, found)

        cases: dict[str, Case] = {name: partial(way, name) for name in WAYS}
        cases |= {PEER: peer} if cell.peer else {}
        run_cases(cases | {"median errors": errors}, limit, found)


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
            rate = _measure(cell, way, generator, batch, scale, model, bound, limit, found)
            _add_simulated(cell, way, parts, batch, scale, rate, found)


def _add_simulated(
    cell: LargerCell,
    way: str,
    parts: EngineParts,
    batch: int,
    scale: Scale,
    executed: float,
    found: Findings,
) -> None:
    """What the simulator says of the engine's own plan, over what came of it; or why it does not
    say anything.
    """
    case, host = _case(cell, scale, batch), _host_case(scale, batch)
    try:
        from benchmarks.gpu.larger_prediction import simulated_per_s

        expected = simulated_per_s(parts, host, scale.dtype, cell.memory_bytes, scale.host_bytes)
    except (ImportError, TandemError) as error:
        found.note(f"{case}: {way}: nothing was simulated: {error}")
        return
    found.add(ratio_row(case, way, "simulated", expected, executed))


def _add_errors(cell: LargerCell, scale: Scale, found: Findings) -> None:
    """Of each batch, over all ways."""
    errors = [median_error(found, _case(cell, scale, batch), "simulated") for batch in cell.batches]
    found.add(*(row for row in errors if row is not None))


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
) -> float:
    """Tokens/s of decode, the median."""
    case = _host_case(scale, batch)
    prompts = case.prompts(0, model.spec.vocab_size)
    generator.generate(prompts, 2)  # a first time
    samples = [
        generator.generate(prompts, case.new_tokens).decode_tokens_per_s
        for _ in limit.rounds(scale.rounds)
    ]
    row = row_of_samples(
        _case(cell, scale, batch), name, "decode throughput", samples, "tokens/s", bound
    )
    found.add(row)
    return row.value


def _host_case(scale: Scale, batch: int) -> HostCase:
    return HostCase(batch, _PROMPT_TOKENS, scale.larger_tokens)


def _case(cell: LargerCell, scale: Scale, batch: int) -> str:
    memory = format_size(cell.memory_bytes)
    return f"{cell.shape.name}, {scale.dtype}, {memory} of device memory, batch {batch}"


def _rates(scale: Scale) -> ChainRates:
    """As probed in this process: copies of the device, its link, and the host's reading."""
    probed = TorchAccelerator(scale.probed(), CODE_MATHS)
    size = min(_PROBE_BYTES, probed.memory_bytes // 8)
    link = probed.crossings((size,), to_device=True, pinned=True)[size]
    found_s = median_seconds({"copy": probed.copying(size), "link": link}, 3)
    read: Callable[[], float] = read_probe()
    return ChainRates(2 * size / found_s["copy"], size / found_s["link"], max(read(), read()))
