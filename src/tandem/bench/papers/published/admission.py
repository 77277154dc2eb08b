"""Who is where: NEO's steps 2 and 3, as its code has them."""

from dataclasses import dataclass

from tandem.bench.papers.published.machine import MAX_ROWS, PublishedMachine
from tandem.bench.papers.published.queues import Queues, Request, blocks_of

SWAP_IN_SHARE = 0.95
"""Of the accelerator's blocks, to which requests come back from the host."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Prompts that could be read in an iteration, and what changed sides for it.

    Attributes:
        to_device, to_host: waiting requests in their order, by where their KV would go.
        blocks_out, blocks_in: that were swapped.
        free_rows: that the iteration could take beside them.
    """

    to_device: tuple[Request, ...]
    to_host: tuple[Request, ...]
    blocks_out: int
    blocks_in: int
    free_rows: int


def admit(queues: Queues, machine: PublishedMachine) -> Admission:
    """Swap out whom the accelerator has no room for any more, or in whom it has room for; then as
    many whole prompts as fit, first to the accelerator, after the first that does not fit there to
    the host.
    """
    held, out = blocks_of(queues.on_device), 0
    while held > machine.device_blocks:
        last = queues.on_device.pop()
        queues.on_host.appendleft(last)
        held, out = held - last.blocks, out + last.blocks
    back = 0 if out else _swap_in(queues, machine, held)
    return _prompts(queues, machine, held + back, out, back)


def _swap_in(queues: Queues, machine: PublishedMachine, held: int) -> int:
    back, most = 0, round(machine.device_blocks * SWAP_IN_SHARE)
    while queues.on_host and len(queues.on_device) < MAX_ROWS:
        first = queues.on_host[0]
        if held + back + first.blocks > most:
            break
        back += first.blocks
        queues.on_device.append(queues.on_host.popleft())
    return back


def _prompts(
    queues: Queues, machine: PublishedMachine, held: int, out: int, back: int
) -> Admission:
    rows = MAX_ROWS - len(queues.on_device)
    tokens = machine.step_tokens - len(queues.on_device)
    on_host = blocks_of(queues.on_host) + blocks_of(queues.crossing)
    passing, most_on_host = 0, machine.host_blocks - machine.device_blocks
    to_device: list[Request] = []
    to_host: list[Request] = []
    for each in queues.waiting:
        blocks = each.blocks
        # the KV of prompts that go to the host passes through the accelerator's own blocks
        full = passing + blocks > machine.device_blocks or on_host + blocks > most_on_host
        if full or not rows or each.prompt_tokens > tokens:
            break
        rows, tokens = rows - 1, tokens - each.prompt_tokens
        if not to_host and held + blocks <= machine.device_blocks:
            held += blocks
            to_device.append(each)
        else:
            on_host, passing = on_host + blocks, passing + blocks
            to_host.append(each)
    return Admission(tuple(to_device), tuple(to_host), out, back, rows)
