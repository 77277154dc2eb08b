"""Attention whose times were measured: decode by rows and context, prompts by their own."""

from abc import ABC, abstractmethod

from tandem.cost.stage import AttentionWork
from tandem.planner.load import TierLoad


class MeasuredAttention(ABC):
    """Tells decode and prompts apart, of a lane in means or counted."""

    def attend_s(self, load: TierLoad, window: int) -> float:
        """Decode and prompts of one layer, by means."""
        decode, prompts = load._replace(chunk=0), load._replace(rows=0)
        decoding, reading = decode.attention(window), prompts.attention(window)
        return self.decode_s(decoding) + self.prompt_s(reading)

    def counted_s(self, work: AttentionWork) -> float:
        """Attention of one lane of one step; where keys are seen by several tokens, prompts'."""
        return self.prompt_s(work) if work.pairs > work.keys else self.decode_s(work)

    @abstractmethod
    def decode_s(self, work: AttentionWork) -> float:
        """Of a token for each row; 0 of none."""

    @abstractmethod
    def prompt_s(self, work: AttentionWork) -> float:
        """Of tokens that see each other; 0 of none."""
