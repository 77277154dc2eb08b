"""Two sub-batches that are being filled: NEO's steps 4 and 5, as its code has them."""

from collections.abc import Iterable, Sequence

from tandem.bench.papers.published.machine import LayerTimes
from tandem.bench.papers.published.queues import Request
from tandem.cost.neo.pipeline import PipelinedLayer, SubBatchTimes

LAUNCH_S = 0.8e-3
"""That the code counts beside the CPU's attention of either sub-batch, on any machine."""
FEW_TOKENS = 128
"""So many tokens an iteration keeps, though their KV goes to the host: `linr_S_threshold`."""


class SubBatches:
    """Batch 0 has the prompts and all rows on the accelerator, batch 1 rows on the host alone.

    Attributes:
        prompts: in their order; those to the host come last.
        rows: on the host, of batch 0 and of batch 1.
    """

    def __init__(
        self, times: LayerTimes, on_device: Sequence[int], prompts: Iterable[Request], kept: int
    ) -> None:
        """Begin with all that the accelerator attends to.

        Args:
            on_device: contexts of the rows there.
            kept: of the prompts, those whose KV stays there.
        """
        self._times, self._kept, self.prompts = times, kept, list(prompts)
        self._decoding, self._decode_s = len(on_device), times.decode_s(on_device)
        self._prompt_s = sum(times.prompt_s(each.prompt_tokens) for each in self.prompts)
        tokens = sum(each.prompt_tokens for each in self.prompts)
        self._tokens = [self._decoding + tokens, 0]
        self._host_s = [0.0, 0.0]
        self.rows: tuple[list[Request], list[Request]] = ([], [])

    @property
    def layer(self) -> PipelinedLayer:
        """As it runs: the CPU's attention, without what launching is said to take."""
        return PipelinedLayer(self._times_of(0), self._times_of(1))

    @property
    def accelerator_s(self) -> float:
        """Per layer, of both."""
        linear_s = self._times.linear_s(self._tokens[0]) + self._times.linear_s(self._tokens[1])
        return linear_s + self._attention_s

    @property
    def requests(self) -> int:
        """In both."""
        return self._decoding + len(self.prompts) + sum(map(len, self.rows))

    @property
    def _attention_s(self) -> float:
        return self._prompt_s + self._decode_s

    def place(self, hosted: Iterable[Request], free_rows: int) -> None:
        """Each row on the host to the batch whose CPU has more time left, if both keep up; once one
        has been left out, all that are as long.
        """
        batch, longest = 1, float("inf")
        for each in hosted:
            if not free_rows:
                return
            context = each.context_tokens
            if context >= longest:
                continue
            self._add(batch, each, 1)
            left = self._left()
            if min(left) < 0:
                longest = context
                self._add(batch, each, -1)
                continue
            free_rows -= 1
            batch = int(left[1] > left[0])

    def drop_prompts(self) -> None:
        """Of those that go to the host, the last, as long as the CPU's attention stays hidden and
        some tokens remain.
        """
        while len(self.prompts) > self._kept:
            last = self.prompts.pop()
            self._count(last, -1)
            if self._tokens[0] < FEW_TOKENS or min(self._left()) < 0:
                self.prompts.append(last)
                self._count(last, 1)
                return

    def _add(self, batch: int, request: Request, sign: int) -> None:
        rows = self.rows[batch]
        if not rows or (sign < 0 and len(rows) == 1):
            self._host_s[batch] += sign * self._times.host_start_s()
        self._host_s[batch] += sign * self._times.host_row_s(request.context_tokens)
        self._tokens[batch] += sign
        if sign > 0:
            rows.append(request)
        else:
            rows.pop()

    def _count(self, prompt: Request, sign: int) -> None:
        self._tokens[0] += sign * prompt.prompt_tokens
        self._prompt_s += sign * self._times.prompt_s(prompt.prompt_tokens)

    def _left(self) -> tuple[float, float]:
        """Seconds per layer that hide more of either batch's attention on the CPU."""
        first = self._times.linear_s(self._tokens[1]) + self._attention_s - self._host_s[0]
        return first - LAUNCH_S, self._times.linear_s(self._tokens[0]) - self._host_s[1] - LAUNCH_S

    def _times_of(self, batch: int) -> SubBatchTimes:
        linear_s = self._times.linear_s(self._tokens[batch])
        attention_s = 0.0 if batch else self._attention_s
        return SubBatchTimes(linear_s, attention_s, self._host_s[batch])
