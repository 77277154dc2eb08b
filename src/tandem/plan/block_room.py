"""How much memory of which kind an offline plan's sequences have."""

from dataclasses import dataclass

from tandem.plan.offline import OfflinePlan


@dataclass(frozen=True, slots=True)
class BlockRoom:
    """Blocks are of `block_size` tokens.

    Attributes:
        device_blocks, host_blocks: of all layers, for KV that stays in one memory.
        slot_blocks: of one layer, in each of the slots that KV passes through; 0: none passes.
        prefix_rows: sequences whose prefix may be recomputed, in all batches; of each of them
            `prefix_tokens` activations are kept.
        recomputed_blocks: of one layer, for what a batch recomputes.
    """

    device_blocks: int
    host_blocks: int
    slot_blocks: int = 0
    prefix_rows: int = 0
    prefix_tokens: int = 0
    recomputed_blocks: int = 0

    @property
    def prefix_entries(self) -> int:
        """Activations on the host, of one layer."""
        return self.prefix_rows * self.prefix_tokens

    @staticmethod
    def of(plan: OfflinePlan) -> "BlockRoom":
        """What a plan gives them: sequences of mean length, and a slot that holds the longest one,
        or the prompts of a step.
        """
        made = plan.recomputed_tokens // plan.block_size
        streamed = plan.streamed_rows * (plan.row_blocks - made)
        slot = 0
        if plan.host_rows:
            slot = max(_blocks(plan.prefill_tokens, plan), longest_blocks(plan), streamed)
        return BlockRoom(
            device_blocks=plan.batches * plan.resident_rows * plan.row_blocks,
            host_blocks=plan.batches * (streamed + plan.cpu_rows * plan.row_blocks),
            slot_blocks=slot,
            prefix_rows=plan.batches * plan.streamed_rows if made else 0,
            prefix_tokens=plan.recomputed_tokens,
            recomputed_blocks=plan.streamed_rows * made,
        )


def longest_blocks(plan: OfflinePlan) -> int:
    """Of the longest sequence, whose last token needs no KV."""
    return _blocks(max(1, plan.max_model_len - 1), plan)


def _blocks(tokens: int, plan: OfflinePlan) -> int:
    return -(-tokens // plan.block_size)
