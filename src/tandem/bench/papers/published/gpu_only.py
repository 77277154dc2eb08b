"""SwiftLLM as NEO and APEX measure it: NEO's engine with `--always-use-gpu`."""

from tandem.bench.papers.published.machine import MAX_ROWS, LayerTimes, PublishedMachine
from tandem.bench.papers.published.queues import (
    Iteration,
    Queues,
    Request,
    blocks_of,
    contexts_of,
)


class GpuOnly:
    """All decodes and, where there is room, whole prompts in one batch, first come, first served.

    Room is what requests take now: who began last is swapped out to the host when they have grown,
    and no prompt is read until all are back.
    """

    def __init__(self, machine: PublishedMachine, times: LayerTimes) -> None:
        self._machine, self._times = machine, times

    def step(self, queues: Queues) -> Iteration:
        """One batch."""
        out = self._swap_out(queues)
        prompts, back = list[Request](), 0
        if not queues.on_host:
            prompts = self._prompts(queues)
        elif not out:
            back = self._swap_in(queues)
        rows = tuple(queues.on_device)
        tokens = len(rows) + sum(each.prompt_tokens for each in prompts)
        attention_s = sum(self._times.prompt_s(each.prompt_tokens) for each in prompts)
        layer_s = self._times.linear_s(tokens) + attention_s
        layer_s += self._times.decode_s(contexts_of(rows))
        time_s = self._times.num_layers * layer_s + self._times.head_s(len(rows) + len(prompts))
        return Iteration(time_s, rows, prompts, (), out, back)

    def _swap_out(self, queues: Queues) -> int:
        """Blocks that must go for the others to grow."""
        out, held = 0, blocks_of(queues.on_device)
        while held > self._machine.device_blocks:
            last = queues.on_device.pop()
            queues.on_host.appendleft(last)
            held, out = held - last.blocks, out + last.blocks
        return out

    def _swap_in(self, queues: Queues) -> int:
        back, held = 0, blocks_of(queues.on_device)
        while queues.on_host and held + queues.on_host[0].blocks <= self._machine.device_blocks:
            first = queues.on_host.popleft()
            queues.on_device.append(first)
            held, back = held + first.blocks, back + first.blocks
        return back

    def _prompts(self, queues: Queues) -> list[Request]:
        found: list[Request] = []
        held, rows = blocks_of(queues.on_device), len(queues.on_device)
        tokens = rows
        for each in queues.waiting:
            held, tokens = held + each.blocks, tokens + each.prompt_tokens
            full = held > self._machine.device_blocks or tokens > self._machine.step_tokens
            if full or rows + len(found) >= MAX_ROWS:
                break
            found.append(each)
        return found
