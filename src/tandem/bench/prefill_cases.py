"""Cases of the prefill benchmark, and who attends: the compiled kernel, and torch in some forms."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tandem.devices.host_memory import bulk_zeros
from tandem.kernels.dense import ScoreRule, dense_attention
from tandem.kernels.native_attention import NativeBatch, paged_attention
from tandem.kernels.native_pool import NativePool
from tandem.kernels.state import merge_states
from tandem.plan.binding import TierAttention
from tandem.probes.kernel_cases import BLOCK_SIZE, HeadShape
from tandem.probes.timing import timed

Attend = Callable[[], Tensor]  # out [tokens, heads, head_dim]


@dataclass(frozen=True, slots=True)
class Prompt:
    """New tokens after some that the cache holds."""

    tokens: int
    prefix: int = 0

    def __str__(self) -> str:
        return f"{self.tokens} after {self.prefix}" if self.prefix else f"{self.tokens}"

    def flops(self, shape: HeadShape) -> int:
        """Of both products, over the keys that each token sees."""
        seen = self.tokens * self.prefix + self.tokens * (self.tokens + 1) // 2
        return 4 * seen * shape.heads * shape.head_dim


@dataclass(frozen=True, slots=True)
class PrefillCase:
    """One layer's inputs, in pages and in torch's own layout.

    Attributes:
        query: [tokens, heads, head_dim].
        k, v: [1, kv_heads, prefix + tokens, head_dim]; contiguous.
        pages: [num_blocks, 2, kv_heads, block_size, head_dim]; the same keys and values.
    """

    shape: HeadShape
    prompt: Prompt
    attention: TierAttention
    query: Tensor
    k: Tensor
    v: Tensor
    pages: Tensor


def make_case(shape: HeadShape, prompt: Prompt, dtype: torch.dtype) -> PrefillCase:
    """Random numbers, in shuffled pages."""
    keys = prompt.prefix + prompt.tokens
    blocks = -(-keys // BLOCK_SIZE)
    k, v = torch.randn(2, 1, shape.kv_heads, blocks * BLOCK_SIZE, shape.head_dim).to(dtype)
    order = torch.from_numpy(np.random.default_rng(0).permutation(blocks))
    pages = bulk_zeros((blocks, 2, shape.kv_heads, BLOCK_SIZE, shape.head_dim), dtype)
    for part, tensor in enumerate((k, v)):
        pages[order, part] = tensor[0].unflatten(1, (blocks, BLOCK_SIZE)).transpose(0, 1)
    attention = TierAttention(
        token_index=None,
        query_start=np.array([0, prompt.tokens], np.int32),
        num_decode=0,
        positions=np.arange(prompt.prefix, keys, dtype=np.int32),
        block_table=order[None].numpy().astype(np.int32),
        block_index=None,
    )
    query = torch.randn(prompt.tokens, shape.heads, shape.head_dim).to(dtype)
    k, v = (t[:, :, :keys].contiguous() for t in (k, v))
    return PrefillCase(shape, prompt, attention, query, k, v, pages)


def tandem(case: PrefillCase, pool: NativePool) -> Attend:
    """The compiled kernel on the pages as they lie."""
    shape = case.shape
    batch = NativeBatch.from_binding(case.attention, shape.pages, shape.heads, pool.num_threads)
    return lambda: paged_attention(pool, case.query, case.pages, batch, shape.scale).out


def torch_forms(case: PrefillCase) -> dict[str, Attend]:
    """Ways to do it well with torch; which is best depends on element type and prefix."""
    group = case.shape.heads // case.shape.kv_heads
    query = case.query.transpose(0, 1)[None].contiguous()
    keys, values = (t.repeat_interleave(group, 1) for t in (case.k, case.v))
    forms = {
        "expanded": _attention(case, lambda: (query, keys, values)),
        "grouped": _attention(case, lambda: (query, case.k, case.v)),
    }
    if case.query.dtype != torch.float32:  # where torch has no fast 16-bit product
        forms["grouped, widened to float32"] = _attention(
            case, lambda: (query.float(), case.k.float(), case.v.float())
        )
    if case.prompt.prefix:
        forms["rectangle and triangle in float32"] = lambda: _in_two(case, query)
    return forms


def _attention(case: PrefillCase, inputs: Callable[[], tuple[Tensor, Tensor, Tensor]]) -> Attend:
    tokens, prefix, scale = case.prompt.tokens, case.prompt.prefix, case.shape.scale
    mask = None
    if prefix:  # torch's own causal mask begins at the first key
        mask = torch.full((tokens, prefix + tokens), -torch.inf).triu_(prefix + 1)
        mask = mask.to(inputs()[0].dtype)

    def attend() -> Tensor:
        q, k, v = inputs()
        grouped = k.shape[1] != q.shape[1]
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
        )
        return out[0].transpose(0, 1)

    return attend


def _in_two(case: PrefillCase, query: Tensor) -> Tensor:
    """The prefix, which all tokens see wholly, and the tokens themselves; merged."""
    rule, prefix = ScoreRule(case.shape.scale), case.prompt.prefix
    q = query[0].float().unflatten(0, (case.shape.kv_heads, -1))  # a group shares its keys
    k, v = (t.float().transpose(0, 1) for t in (case.k, case.v))
    before = dense_attention(q, k[:, :, :prefix], v[:, :, :prefix], rule)
    own = dense_attention(q, k[:, :, prefix:], v[:, :, prefix:], rule, causal=True)
    return merge_states(*before, *own)[0].permute(2, 0, 1, 3).flatten(1, 2)


def best_form(forms: dict[str, Attend]) -> tuple[str, Attend]:
    """The one whose fastest of three calls is the fastest."""
    times: dict[str, float] = {}
    for name, attend in forms.items():
        times[name] = min(timed(attend) for _ in range(3))
    name = min(times, key=lambda form: times[form])
    return name, forms[name]
