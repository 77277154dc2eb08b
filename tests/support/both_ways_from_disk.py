"""Whether layers on disk that go both ways, to the accelerator and for the CPU, can be faster than
all of them one way: predicted times over machines, memories and sizes of steps drawn at random.

`python -m tests.support.both_ways_from_disk 700` prints what it comes to.
"""

import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tandem.cost.sweep_time import LayerTimes, Way, layer_times, sweep_s
from tandem.models.catalogue import plannable_spec
from tandem.plan.disk_slots import SLOTS
from tandem.plan.weights import STREAM_SLOTS
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.precision import Precision

LAYERS = 16


class Counts(NamedTuple):
    """Layers that are resident, held in host memory for either side, and read for either side."""

    resident: int
    streamed: int
    on_cpu: int
    read: int
    read_on_cpu: int

    @property
    def both(self) -> bool:
        """Whether layers on disk go both ways."""
        return self.read > 0 and self.read_on_cpu > 0

    def ways(self) -> list[Way]:
        """All spread evenly."""
        apart = LAYERS - self.resident
        computed = self.on_cpu + self.read_on_cpu
        chosen, on_cpu = iter(_evenly(apart, LAYERS)), iter(_evenly(computed, apart))
        read = iter(_evenly(self.read, apart - computed))
        read_on_cpu = iter(_evenly(self.read_on_cpu, computed))

        def way() -> Way:
            if not next(chosen):
                return "resident"
            if next(on_cpu):
                return "read-cpu" if next(read_on_cpu) else "cpu"
            return "read" if next(read) else "loaded"

        return [way() for _ in range(LAYERS)]


def _evenly(count: int, places: int) -> list[bool]:
    return [(i + 1) * count // places > i * count // places for i in range(places)]


def placements(accelerator: int, host: int) -> Iterator[Counts]:
    """Of memories that hold so many layers, slots included, those that use all of both."""
    for slots in (0, STREAM_SLOTS):
        resident, held = accelerator - slots, host - SLOTS
        on_disk = LAYERS - resident - held
        if resident < 0 or on_disk < 1:
            continue
        if not slots:
            yield Counts(resident, 0, held, 0, on_disk)
            continue
        for on_cpu in range(held + 1):
            for read_on_cpu in range(on_disk + 1):
                found = Counts(resident, held - on_cpu, on_cpu, on_disk - read_on_cpu, read_on_cpu)
                if found.streamed + found.read > slots:
                    yield found


def random_times(draw: random.Random) -> LayerTimes:
    """Of layers of Llama-3.1-8B beside an RTX 4090, for a step of up to 1024 tokens."""
    card = load_hardware("rtx4090")
    hardware: HardwareSpec = replace(
        card,
        link=replace(card.link, h2d_bytes_per_s=draw.uniform(3e9, 60e9)),
        host=replace(
            card.host,
            memory_bandwidth_bytes_per_s=draw.uniform(15e9, 200e9),
            flops_per_s=10 ** draw.uniform(11, 13),
            disk_bytes_per_s=10 ** draw.uniform(9, 10.3),
        ),
    )
    tokens = draw.choice([1, 1, 4, 16, 64, 256, 1024])
    model = replace(plannable_spec("llama-3.1-8b"), num_layers=LAYERS)
    return layer_times(model, Precision.uniform(DType.BFLOAT16), tokens, hardware)


def gain(seed: int) -> float | None:
    """Time of the best placement one way over that of the best both ways; None: either has none."""
    draw = random.Random(seed)
    times = random_times(draw)
    best: dict[bool, float] = {}
    for counts in placements(draw.randint(0, 10), draw.randint(2, 12)):
        slots = STREAM_SLOTS if counts.streamed + counts.read else 0
        found = sweep_s(counts.ways(), slots, times)
        best[counts.both] = min(found, best.get(counts.both, found))
    return best[False] / best[True] if len(best) == 2 else None


def main(questions: int) -> None:
    """Print how often both ways are faster, and by how much."""
    gains = [found for seed in range(questions) if (found := gain(seed)) is not None]
    faster = sorted(found for found in gains if found > 1.02)
    print(f"{len(gains)} cases, median {statistics.median(gains):.2f}, above 1.02: {faster}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
