"""The link, copies of KV blocks over it, round trips of signals, and what launching takes."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from benchmarks.gpu.cases import Case, CaseError, run_cases
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import ModelFolder, config_for
from benchmarks.gpu.link_meter import LINK_TARGET
from benchmarks.gpu.opened import graph_rows, opened
from benchmarks.gpu.round_trips import pool_round_trips_s, round_trips_s
from benchmarks.gpu.scale import CODE_MATHS, Scale

from tandem.bench.core_generation import CoreGenerator
from tandem.bench.host_case import HostCase
from tandem.bench.records import BenchRow, row_of_samples
from tandem.devices.batch_copies import BatchCopies, NoBatchCopiesError
from tandem.devices.cuda.memory import pin
from tandem.kernels import native
from tandem.kernels.link_copies import LinkCopies
from tandem.memory.page import KVPageSpec
from tandem.probes.accelerator import measure_link
from tandem.probes.probe_device import ProbeDevice
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample, timed
from tandem.probes.torch_accelerator import TorchAccelerator
from tandem.spec.tier import Tier

_LAUNCH_TARGET_S = 0.05e-3  # per layer (NEO: 0.6 ms)
_BOTH = "each way at once"
_LAUNCH_TOKENS = 64
_LAUNCH_HOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Launch:
    """How steps are launched, by the engine's flags; `where` a row's keys are.

    Attributes:
        in_parts: graphs end where the host's part begins, as of steps that cannot be one graph.
    """

    graphs: str
    strategy: str
    placement: str
    where: str
    in_parts: bool = False

    @property
    def is_hybrid(self) -> bool:
        """Whether steps are to be one graph, in which the host has a part."""
        return self.graphs == "on" and self.placement == "host" and not self.in_parts


LAUNCHES = {
    "one graph": Launch("on", "gpu-only", "device", "on the GPU"),
    "operations": Launch("off", "gpu-only", "device", "on the GPU"),
    # what the host adds, its attention and rows there and back in every layer, is the same in all
    "one graph beside the host": Launch("on", "ride-along", "host", "on the host"),
    "a graph between attentions": Launch("on", "ride-along", "host", "on the host", in_parts=True),
    "operations between attentions": Launch("off", "ride-along", "host", "on the host"),
}


def measure_links(scale: Scale, limit: Deadline, found: Findings) -> None:
    """Everything, one after the other."""
    probed, has_streams = scale.probed(), scale.accelerator == "cuda"

    def copies(limit: Deadline) -> None:
        del limit
        _blocks(probed, scale, _link(probed, scale, found), found)

    def signals(limit: Deadline) -> None:
        del limit
        samples = round_trips_s(scale.device, scale.kernels.trips, has_streams=has_streams)
        _signals("kernel, CPU queue, copy to the device", samples, found)

    def pool_signals(by_streams: bool, waits: bool, limit: Deadline) -> None:
        del limit
        if not native.available():
            raise CaseError("there are no compiled kernels")
        samples = pool_round_trips_s(
            scale.device, scale.kernels.trips, has_streams=has_streams, by_streams=by_streams,
            waits=waits,
        )  # fmt: skip
        by = "the copy's stream" if by_streams else "a thread that sees its event"
        by += ", awaited by the other's stream" if waits else ""
        name = f"copy to the host, native pool, copy to the device; signalled by {by}"
        _signals(name, samples, found)

    def launches(name: str, limit: Deadline) -> None:
        del limit
        _launches(name, scale, found)

    cases: dict[str, Case] = {"copies": copies, "signals": signals}
    cases["signals, native pool"] = partial(pool_signals, False, False)
    if has_streams:
        cases["signals, native pool, by streams"] = partial(pool_signals, True, False)
        cases["signals, native pool, streams that wait"] = partial(pool_signals, True, True)
    cases |= {f"launches, {name}": partial(launches, name) for name in LAUNCHES}
    run_cases(cases, limit, found)


def _link(probed: ProbeDevice, scale: Scale, found: Findings) -> dict[str, float]:
    """Both directions, each alone and both at once; bytes per second of each alone, and of the
    slower one of both.
    """
    link = measure_link(TorchAccelerator(probed, CODE_MATHS), scale.effort)
    rates: dict[str, float] = {}
    for name, way in (("to the device", link.h2d), ("from the device", link.d2h)):
        size = way.pinned.sizes[-1]
        rates[name] = size / way.pinned.seconds[-1]
        found.add(
            BenchRow("link", name, "pinned", rates[name] / 1e9, "GB/s"),
            BenchRow(
                "link", name, "pageable", size / way.pageable.seconds[-1] / 1e9, "GB/s",
                rates[name] / 1e9,
            ),
            BenchRow(
                "link", name, "pinned, while the other copies", way.both_bytes_per_s / 1e9, "GB/s",
                rates[name] / 1e9,
            ),
            BenchRow("link", name, f"{way.pinned.sizes[0]:.0f} bytes",
                     way.pinned.seconds[0] * 1e6, "us"),
        )  # fmt: skip
    rates[_BOTH] = min(link.h2d.both_bytes_per_s, link.d2h.both_bytes_per_s)
    found.add(
        BenchRow("launch", probed.name, "known to have ended", link.launch_s * 1e6, "us"),
        BenchRow("launch", probed.name, "one of many", link.kernel_s * 1e6, "us"),
    )
    return rates


def _blocks(probed: ProbeDevice, scale: Scale, rates: dict[str, float], found: Findings) -> None:
    """Shuffled KV blocks of all layers between pools, as preemption moves them."""
    with ModelFolder(scale.kernels.shape, scale.dtype) as model:
        spec = model.spec
    page = KVPageSpec.of_model(spec, dtype=scale.dtype, block_size=64)
    count = scale.kernels.blocks
    size = (spec.num_layers, count, 2, page.num_kv_heads, page.block_size, page.head_dim)
    dtype: torch.dtype = getattr(torch, scale.dtype.value)
    there = torch.zeros(size, dtype=dtype, device=probed.device)
    here = torch.zeros(size, dtype=dtype)
    unpin: Callable[[], None] | None = pin(here) if probed.device.type == "cuda" else None
    half = max(1, count // 2)
    order = torch.randperm(count)
    ids, others = order[:half], order[half : 2 * half]
    pools = {Tier.DEVICE: there, Tier.HOST: here}

    def copy(source: Tier, target: Tier, copies: LinkCopies) -> float:
        def run() -> None:
            with probed.aside():  # there are no batches on the default stream
                copies.copy(pools[source], ids, pools[target], ids)
            probed.synchronize()

        return timed(run)

    def both(number: int) -> float:
        del number

        def run() -> None:
            link.copy(here, ids, there, ids)
            with probed.aside():
                link.copy(there, others, here, others)
            probed.synchronize()

        return timed(run)

    moved = half * page.bytes_per_block
    ways = {
        "to the device": (Tier.HOST, Tier.DEVICE),
        "from the device": (Tier.DEVICE, Tier.HOST),
    }
    link = LinkCopies(probed.device)
    kinds = {"copied": link} | _batched(probed, found)
    samples: dict[tuple[str, str], Sample] = {
        (name, kind): lambda _, way=way, copies=copies: copy(way[0], way[1], copies)
        for name, way in ways.items()
        for kind, copies in kinds.items()
    }
    samples[(_BOTH, "copied")] = both
    for (name, kind), seconds in median_seconds(samples, scale.kernels.rounds).items():
        bound = LINK_TARGET * rates[name] / 1e9
        found.add(
            BenchRow(
                f"{half} shuffled KV blocks of {page.bytes_per_block} bytes", name, kind,
                moved / seconds / 1e9, "GB/s", bound,
            )
        )  # fmt: skip
    if unpin is not None:
        unpin()


def _batched(probed: ProbeDevice, found: Findings) -> dict[str, LinkCopies]:
    """Copies by one call of the driver, where it has that."""
    if probed.device.type != "cuda":
        return {}
    try:
        return {"copied in a batch": LinkCopies(probed.device, BatchCopies())}
    except NoBatchCopiesError as error:
        found.note(str(error))
        return {}


def _signals(name: str, samples_s: Sequence[float], found: Findings) -> None:
    samples = [seconds * 1e6 for seconds in samples_s]
    found.add(row_of_samples("signals", name, "round trip", samples, "us"))


def _launches(name: str, scale: Scale, found: Findings) -> None:
    """Decoding with a model so narrow that launching is what takes the time."""
    launch = LAUNCHES[name]
    layers, times = _decode_times_ms(name, scale, launch, found)
    found.add(
        row_of_samples(
            f"decode of one row {launch.where}, {layers} layers so narrow that launching decides",
            name, "time per layer", [each / layers for each in times], "ms",
            _LAUNCH_TARGET_S * 1e3,
        )
    )  # fmt: skip


def _decode_times_ms(
    name: str, scale: Scale, launch: Launch, found: Findings
) -> tuple[int, list[float]]:
    """The model's layers, and what a token takes."""
    case = HostCase(1, 8, max(4, min(_LAUNCH_TOKENS, 16 * scale.new_tokens)))
    with ModelFolder(scale.launch_shape, scale.dtype) as model:
        options: dict[str, Any] = {
            "strategy": launch.strategy,
            "max_num_seqs": 1,
            "max_model_len": 128,
            "cuda_graphs": launch.graphs,
            "kv_placement": launch.placement,
            # more would only take time to pin
            "cpu_memory": str(min(scale.host_bytes, _LAUNCH_HOST_BYTES)),
        }
        memory_bytes = max(cell.memory_bytes for cell in scale.online)
        engine = opened(config_for(scale, model.path, memory_bytes, options))
        with closing(CoreGenerator(engine.core)) as generator:
            if launch.in_parts:
                engine.parts.assembled.machine.contexts.hybrid = None
            elif launch.is_hybrid and engine.parts.assembled.machine.runner.hybrid is None:
                raise CaseError("this device has no such graphs, only those between attentions")
            prompts = case.prompts(0, model.spec.vocab_size)
            samples = [
                1e3 / generator.generate(prompts, case.new_tokens).decode_tokens_per_s
                for _ in range(scale.rounds + 1)
            ]
        found.add(*graph_rows("graphs", name, engine.parts))
        return model.spec.num_layers, samples[1:]
