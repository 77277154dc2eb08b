"""KV blocks that move between the tiers, in the order of a queue over the link."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tandem.kernels.tier_kernels import TierKernels
from tandem.runtime.kv_store import KVStore
from tandem.runtime.running import Running
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.kernels.link_copies import LinkCopies


class PageMoves:
    """The copies of whole blocks.

    Args:
        kernels: of each tier.
        staged: the accelerator's kernels for pages of the host's type, where those differ from its
            own: blocks are converted there, so that no queue waits for the host's processor.

    Attributes:
        link: what copies over a real link; None: both tiers lie in host memory.
    """

    def __init__(self, kv: KVStore, kernels: dict[Tier, TierKernels], staged: TierKernels) -> None:
        self._kv, self._kernels, self._staged = kv, kernels, staged
        self.link: LinkCopies | None = None

    def move(self, running: Running) -> None:
        """A COPY of pages."""
        transfer = running.context.pages[(running.op.queue, running.op.ordinal)]
        source = self._kv.all_layers(transfer.source, running.op.queue)
        target = self._kv.all_layers(transfer.target, running.op.queue)
        source_ids = torch.from_numpy(transfer.source_blocks).long()
        target_ids = torch.from_numpy(transfer.target_blocks).long()
        if not self._kv.page.converts:
            self._copy(source, source_ids, target, target_ids)
            return
        # Imported where tiers differ: a first token waits for what is imported.
        from tandem.kernels.page_conversion import convert_from_host, convert_to_host

        own = self._kernels[Tier.DEVICE]
        if transfer.source is Tier.DEVICE:
            convert_to_host(source, source_ids, own, target, target_ids, self._staged, self._copy)
        else:
            convert_from_host(source, source_ids, self._staged, target, target_ids, own, self._copy)

    def _copy(self, source: Tensor, source_ids: Tensor, target: Tensor, target_ids: Tensor) -> None:
        if self.link is not None:
            self.link.copy(source, source_ids, target, target_ids)
        else:
            self._kernels[Tier.HOST].copy_blocks(source, source_ids, target, target_ids)
