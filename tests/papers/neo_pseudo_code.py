"""NEO's load-aware scheduling, transcribed from appendix A of the paper line by line.

Names are the listing's. What it writes in capitals, and the three functions that it does not show,
are asked of `Machine`, so that the listing stays as it is printed.
"""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Req:
    """A request: its name, tokens that it computes now, and keys that they see."""

    name: str
    tokens: int
    keys: int


@dataclass(slots=True)
class Batch:
    """What one of the two sub-batches holds."""

    gpu_decodes: list[Req] = field(default_factory=list[Req])
    gpu_prefills: list[Req] = field(default_factory=list[Req])
    cpu_prefills: list[Req] = field(default_factory=list[Req])
    cpu_decodes: list[Req] = field(default_factory=list[Req])

    @property
    def requests(self) -> list[Req]:
        """All of them."""
        return [*self.gpu_decodes, *self.gpu_prefills, *self.cpu_prefills, *self.cpu_decodes]

    def without_cpu_decodes(self) -> "Batch":
        """`remove_all_cpu_decodings`, which returns another batch."""
        return Batch([*self.gpu_decodes], [*self.gpu_prefills], [*self.cpu_prefills])


class Machine(Protocol):
    """What the listing leaves to the machine; batches are 0 and 1, or one that runs alone."""

    def need_swap_out(self, gpu_decoding_q: list[Req]) -> bool: ...
    def can_swap_in(self, gpu_decoding_q: list[Req], req: Req) -> bool: ...
    def can_prefill_to_gpu(self, req: Req, batches: list[Batch]) -> bool: ...
    def can_prefill_to_cpu(self, req: Req, batches: list[Batch]) -> bool: ...
    def cpu_time_exceed_gpu(self, batches: list[Batch]) -> bool: ...
    def token_rate(self, batches: list[Batch]) -> float: ...
    def reduce_cpu_prefill(self, batch: Batch, batches: list[Batch]) -> None: ...


def load_aware_scheduling(
    waiting_q: list[Req], gpu_decoding_q: list[Req], cpu_decoding_q: list[Req], machine: Machine
) -> list[Batch]:
    """One iteration's batches: two, or the accelerator's alone. Queues change as requests move."""
    # 1. Initialization
    batches = [Batch(), Batch()]

    # 2. Schedule GPU decoding requests
    while machine.need_swap_out(gpu_decoding_q):
        cpu_decoding_q.insert(0, gpu_decoding_q.pop())
    while cpu_decoding_q and machine.can_swap_in(gpu_decoding_q, cpu_decoding_q[0]):
        gpu_decoding_q.append(cpu_decoding_q.pop(0))
    for req in gpu_decoding_q:
        batches[0].gpu_decodes.append(req)

    # 3. Schedule prefilling requests
    for req in waiting_q:
        if machine.can_prefill_to_gpu(req, batches):
            batches[0].gpu_prefills.append(req)
        elif machine.can_prefill_to_cpu(req, batches):
            batches[0].cpu_prefills.append(req)
        else:
            break

    # 4. Schedule CPU decoding requests
    for req in cpu_decoding_q:
        for i in [1, 0]:
            batches[i].cpu_decodes.append(req)
            if machine.cpu_time_exceed_gpu(batches):
                batches[i].cpu_decodes.pop()
            else:
                break

    # 5. Reduce prefilling requests
    gpu_only_batch = batches[0].without_cpu_decodes()
    machine.reduce_cpu_prefill(batches[0], batches)
    machine.reduce_cpu_prefill(gpu_only_batch, [gpu_only_batch])

    # 6. Make decisions
    if machine.token_rate([gpu_only_batch]) > machine.token_rate(batches):
        batches = [gpu_only_batch]
    return batches
