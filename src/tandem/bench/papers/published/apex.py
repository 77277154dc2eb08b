"""APEX's algorithm 1 as it is printed, over NEO's queues."""

from dataclasses import replace

from tandem.bench.papers.published.admission import Admission, admit
from tandem.bench.papers.published.machine import LayerTimes, PublishedMachine
from tandem.bench.papers.published.neo import PublishedNeo
from tandem.bench.papers.published.queues import Iteration, Queues, contexts_of
from tandem.cost.apex.inequality import (
    DecodeTimes,
    PrefillTimes,
    decode_pipelining_pays,
    mixed_pipelining_pays_as_published,
)
from tandem.cost.apex.overlap import MIN_HOST_ROWS_PER_ACCELERATOR_ROW


class PublishedApex:
    """NEO's two sub-batches where the inequality holds, else asynchronous overlap.

    Overlapped are as many rows as the CPU attends to in an iteration's layers, if they are eight
    for each on the accelerator; they advance together, a layer per iteration in which their
    attention was ready, and go on to their token whatever the inequality says meanwhile. No prompt
    is left out for keeping the CPU busy.
    """

    def __init__(self, machine: PublishedMachine, times: LayerTimes) -> None:
        self._machine, self._times = machine, times
        self._neo = PublishedNeo(machine, times)
        self._layer, self._layer_s, self._left_s = 0, 0.0, 0.0

    def step(self, queues: Queues) -> Iteration:
        """One iteration by whichever the algorithm returns."""
        found = admit(queues, self._machine)
        alone = self._alone(queues, found)
        if queues.crossing:
            return self._overlapped(queues, alone)
        if not queues.on_host:
            return alone
        if self._pays(queues, found):
            batches = self._neo.split(queues, found)
            return self._neo.pipelined(queues, found, batches) if batches.rows[1] else alone
        self._start(queues, alone)
        return self._overlapped(queues, alone) if queues.crossing else alone

    def _alone(self, queues: Queues, found: Admission) -> Iteration:
        """All prompts and the rows on the accelerator."""
        rows = tuple(queues.on_device)
        return Iteration(
            self._time_s(queues, found),
            rows,
            found.to_device,
            found.to_host,
            found.blocks_out,
            found.blocks_in,
        )

    def _time_s(self, queues: Queues, found: Admission) -> float:
        prompts = [*found.to_device, *found.to_host]
        rows = len(queues.on_device)
        tokens = rows + sum(each.prompt_tokens for each in prompts)
        layer_s = self._times.linear_s(tokens)
        layer_s += self._times.decode_s(contexts_of(queues.on_device))
        layer_s += sum(self._times.prompt_s(each.prompt_tokens) for each in prompts)
        return self._times.num_layers * layer_s + self._times.head_s(rows + len(prompts))

    def _pays(self, queues: Queues, found: Admission) -> bool:
        rows = len(queues.on_device)
        if not rows:
            return True  # nothing else is attended to that a second sub-batch would hold up
        on_device, on_host = self._times.attention_rates()
        decode_s = self._times.decode_s(contexts_of(queues.on_device))
        times = DecodeTimes(self._times.linear_s(rows), decode_s, on_device, on_host)
        prompts = [each.prompt_tokens for each in (*found.to_device, *found.to_host)]
        if not prompts:
            return decode_pipelining_pays(times)
        attention_s = decode_s + sum(map(self._times.prompt_s, prompts))
        prefill = PrefillTimes(self._times.linear_s(rows + sum(prompts)), attention_s)
        return mixed_pipelining_pays_as_published(times, prefill)

    def _start(self, queues: Queues, alone: Iteration) -> None:
        """Send off whom the CPU attends to in the accelerator's time, unless they are too few."""
        attention_s, count = self._times.host_start_s(), 0
        for each in queues.on_host:
            row_s = self._times.host_row_s(each.context_tokens)
            if attention_s + row_s > alone.time_s:
                break
            attention_s, count = attention_s + row_s, count + 1
        if not count or count < MIN_HOST_ROWS_PER_ACCELERATOR_ROW * len(queues.on_device):
            return
        queues.crossing = [queues.on_host.popleft() for _ in range(count)]
        self._layer, self._layer_s, self._left_s = 0, attention_s, attention_s

    def _overlapped(self, queues: Queues, alone: Iteration) -> Iteration:
        """The iteration beside which the CPU is at one layer of those who cross."""
        prompts = sum(each.prompt_tokens for each in (*alone.to_device, *alone.to_host))
        tokens, rows = len(alone.decoded) + prompts, len(queues.crossing)
        more_s = self._times.linear_s(tokens + rows) - self._times.linear_s(tokens)
        time_s = alone.time_s + more_s
        self._left_s -= time_s
        if self._left_s > 0:
            return replace(alone, time_s=time_s)
        self._layer, self._left_s = self._layer + 1, self._layer_s
        if self._layer <= self._times.num_layers:
            return replace(alone, time_s=time_s)
        time_s += self._times.head_s(rows)
        decoded = [*alone.decoded, *queues.crossing]
        queues.on_host.extend(queues.crossing)
        queues.crossing = []
        return replace(alone, time_s=time_s, decoded=decoded)
