"""What a model thinks of a text, token by token, on the kernels of the host."""

import numpy as np
import torch
import torch.nn.functional as F

from tandem.kernels.pages import PageShape
from tandem.memory.page import KVPageSpec
from tandem.models.layer_state import LayerState, taken
from tandem.models.model import Model
from tandem.plan.binding import TierAttention
from tandem.plan.program import Queue
from tandem.runtime.choose_kernels import host_kernels
from tandem.runtime.kv_store import KVStore
from tandem.runtime.layer_plans import LayerPlans
from tandem.spec.kv_type import KVType
from tandem.spec.tier import Tier


class TextScorer:
    """Runs a model over documents, each from an empty KV cache, which holds what the engine's does.

    Args:
        model: on the host.
        kv: what the cache holds.
        max_tokens: of a document.
    """

    def __init__(self, model: Model, kv: KVType, max_tokens: int) -> None:
        spec = model.spec
        page = KVPageSpec.of_model(spec, dtype=kv)
        blocks = page.blocks_for_tokens(max_tokens)
        cpu = torch.device("cpu")
        self._model = model
        self._table = np.arange(blocks, dtype=np.int32)[None]
        self._pages = KVStore(page, {Tier.DEVICE: blocks}, {Tier.DEVICE: cpu})
        shape = PageShape(page.local_kv_heads, page.block_size, page.head_dim, page.code_bits)
        pool = None if model.native is None else model.native.pool
        self._kernels = host_kernels(spec, shape, pool)

    def surprise(self, token_ids: list[int]) -> float:
        """Nats of all tokens but the first, given those before each."""
        ids = torch.tensor(token_ids)
        with torch.inference_mode():
            logits = self._model.logits(self._hidden(ids[:-1]))
            return float(F.cross_entropy(logits.double(), ids[1:], reduction="sum"))

    def _hidden(
        self,
        ids: torch.Tensor,  # int64 [tokens]
    ) -> torch.Tensor:
        """The residual after the last layer: [tokens, hidden]."""
        model, count = self._model, len(ids)
        attention = TierAttention(
            token_index=None,
            query_start=np.array([0, count], np.int32),
            num_decode=1 if count == 1 else 0,
            positions=np.arange(count, dtype=np.int32),
            block_table=self._table,
            block_index=None,
        )
        plans = LayerPlans.make(attention, self._kernels, model.spec.layer_windows)
        slots = self._kernels.plan_append(torch.arange(count))
        positions = torch.arange(count)
        state = LayerState(positions=positions, residual=model.embed(ids, positions))
        for layer in range(model.spec.num_layers):
            pre, _, post = model.stages(layer)
            model.run(pre, layer, state)
            pages = self._pages.layer(Tier.DEVICE, layer, Queue.ACCEL)
            query, key, value = (taken(getattr(state, name), name) for name in ("q", "k", "v"))
            self._kernels.append(pages, key, value, slots)
            result = self._kernels.attend(query, pages, plans.of(layer))
            state.finish_attention(result.out.to(query.dtype))
            model.run(post, layer, state)
        return state.residual
