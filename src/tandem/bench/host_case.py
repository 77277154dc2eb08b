"""What a host-only run computes: its prompts, its rate, and the bound of that rate."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tandem.bench.generation import Generated, Prompts
from tandem.bench.host_bounds import HostLimits, decode_bound, decode_bytes, prefill_bound
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class HostCase:
    """One workload: `batch` prompts of equal length, greedy.

    Attributes:
        decode: measure decode after the first tokens; else the time to them.
    """

    batch: int
    prompt_tokens: int
    new_tokens: int
    decode: bool = True

    def __str__(self) -> str:
        if self.decode:
            return f"decode, batch {self.batch}, prompts of {self.prompt_tokens}"
        return f"prefill, batch {self.batch}, prompts of {self.prompt_tokens}"

    @property
    def metric(self) -> str:
        """What is measured, in words."""
        return "decode throughput" if self.decode else "prefill throughput"

    def prompts(self, seed: int, vocab_size: int) -> Prompts:
        """Random prompts; equal seeds give equal ones."""
        draw, ids = random.Random(seed), range(vocab_size)
        return [draw.choices(ids, k=self.prompt_tokens) for _ in range(self.batch)]

    def tokens_per_s(self, run: Generated) -> float:
        """The rate that this case is about."""
        if self.decode:
            return run.decode_tokens_per_s
        return self.batch * self.prompt_tokens / run.first_s

    def bound(self, spec: ModelSpec, dtype: DType, limits: HostLimits) -> float:
        """The rate that a host with these limits could reach, in tokens/s."""
        if not self.decode:
            return prefill_bound(spec, dtype, limits, self.prompt_tokens)
        return decode_bound(spec, dtype, limits, self.batch, self._mean_context)

    def bytes_read(self, spec: ModelSpec, dtype: DType) -> float:
        """What a step of decode reads from memory at least."""
        return decode_bytes(spec, dtype, self.batch, self._mean_context)

    @property
    def _mean_context(self) -> float:
        return self.prompt_tokens + self.new_tokens / 2


def decode_cases(batches: Sequence[int], new_tokens: int) -> tuple[HostCase, ...]:
    """Decode after prompts of 32 tokens."""
    return tuple(HostCase(batch, 32, new_tokens) for batch in batches)


PREFILL_512 = HostCase(1, 512, 1, decode=False)
