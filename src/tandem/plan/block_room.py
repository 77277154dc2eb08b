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
        pinned_blocks: of `host_blocks`, the first ones, which passes bring to the accelerator.
    """

    device_blocks: int
    host_blocks: int
    slot_blocks: int = 0
    prefix_rows: int = 0
    prefix_tokens: int = 0
    recomputed_blocks: int = 0
    pinned_blocks: int = 0

    @property
    def prefix_entries(self) -> int:
        """Activations on the host, of one layer."""
        return self.prefix_rows * self.prefix_tokens

    @staticmethod
    def of(plan: OfflinePlan) -> "BlockRoom":
        """What a plan gives them."""
        made = plan.recomputed_tokens // plan.block_size
        return BlockRoom(
            device_blocks=plan.device_blocks,
            host_blocks=plan.host_blocks,
            slot_blocks=plan.slot_blocks,
            prefix_rows=plan.batches * plan.streamed_rows if made else 0,
            prefix_tokens=plan.recomputed_tokens,
            recomputed_blocks=plan.streamed_rows * made,
            pinned_blocks=plan.pinned_host_blocks,
        )
