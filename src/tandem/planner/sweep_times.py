"""What sweeps take with other rows than a candidate's, between some that were timed."""

from dataclasses import dataclass

from tandem.spec.model import ExpertSpec


@dataclass(frozen=True, slots=True)
class ExpertTimes:
    """Seconds for a mixture's experts: few tokens go to a part of them, many to all.

    Attributes:
        all_s: if some token goes to each.
        row_tokens: in KV that a row attends to in the mean, by which rows are counted.
    """

    experts: ExpertSpec
    all_s: float
    row_tokens: float

    def seconds(self, seen_tokens: float, prompt_tokens: float) -> float:
        """Of a sweep whose rows attend to so many tokens in KV, beside tokens of prompts."""
        tokens = seen_tokens / self.row_tokens + prompt_tokens
        return self.all_s * self.experts.touched_share(tokens)


@dataclass(frozen=True, slots=True)
class SweepTimes:
    """Seconds: those without rows, for each token in KV that is attended to, and for prompts.

    Attributes:
        device_token_s, host_token_s: by where the KV lies.
        prompts: (tokens of prompts in a sweep, seconds that they add), ascending.
        experts: of a mixture; None: there are none, or they make no difference.
        hosted_s: where nothing is on the device, of as much of a cohort's way as a sweep beside
            others takes it; None: as of any other.
    """

    least_s: float
    device_token_s: float
    host_token_s: float
    prompts: tuple[tuple[float, float], ...]
    hosted_s: float | None = None
    experts: ExpertTimes | None = None

    def __call__(self, device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        """Of a sweep over so many tokens."""
        if self.hosted_s is not None and not (device_tokens or prompt_tokens):
            return self.hosted_s
        decode_s = self.least_s + device_tokens * self.device_token_s
        decode_s += host_tokens * self.host_token_s
        if self.experts is not None:
            decode_s += self.experts.seconds(device_tokens + host_tokens, prompt_tokens)
        return decode_s + self._prompts_s(prompt_tokens)

    def _prompts_s(self, tokens: float) -> float:
        before, before_s = 0.0, 0.0
        for size, size_s in self.prompts:
            if tokens <= size:
                break
            before, before_s = size, size_s
        else:
            return before_s * tokens / before
        return before_s + (size_s - before_s) * (tokens - before) / (size - before)
