"""Torch attention on a CUDA device against float64; conversion, sampling, copies as the host's."""

import unittest

import numpy as np
import torch
from tests.gpu.exact_attention import exact_attention

from tandem.devices.batch_copies import BatchCopies, NoBatchCopiesError
from tandem.devices.cuda.memory import pin
from tandem.kernels.attention import AttentionBatch, paged_attention
from tandem.kernels.link_copies import LinkCopies
from tandem.kernels.page_conversion import convert_from_host, convert_to_host
from tandem.kernels.pages import PageShape, append_kv
from tandem.kernels.sampling import sample
from tandem.kernels.tier_kernels import ReferenceKernels
from tandem.plan.binding import CounterNumbers, SamplingRows, TierAttention

_HEADS, _KV_HEADS, _DIM, _BLOCK = 8, 2, 32, 16
_CONTEXTS = (5, 16, 40, 100)


def _binding() -> TierAttention:
    """One decode token at the end of each context."""
    blocks = [-(-context // _BLOCK) for context in _CONTEXTS]
    table = np.zeros((len(blocks), max(blocks)), dtype=np.int32)
    first = 0
    for row, count in enumerate(blocks):
        table[row, :count] = np.arange(first, first + count)
        first += count
    return TierAttention(
        token_index=None,
        query_start=np.arange(len(blocks) + 1, dtype=np.int32),
        num_decode=len(blocks),
        positions=np.array(_CONTEXTS, dtype=np.int32) - 1,
        block_table=table,
        block_index=None,
    )


def test_decode_attention_is_right() -> None:
    generator = torch.Generator().manual_seed(0)
    pages = torch.randn(32, 2, _KV_HEADS, _BLOCK, _DIM, generator=generator)
    query = torch.randn(len(_CONTEXTS), _HEADS, _DIM, generator=generator)
    shape, lane, scale = PageShape(_KV_HEADS, _BLOCK, _DIM), _binding(), _DIM**-0.5
    batch = AttentionBatch.from_binding(lane, torch.device("cuda"), shape)
    found = paged_attention(query.cuda(), pages.cuda(), batch, scale)
    expected = exact_attention(query, pages, lane, shape, scale)
    for ours, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), exact, atol=2e-5, rtol=1e-4)


def test_append_writes_the_named_slots() -> None:
    pages = torch.zeros(4, 2, _KV_HEADS, _BLOCK, _DIM, device="cuda")
    key = torch.ones(2, _KV_HEADS, _DIM, device="cuda")
    append_kv(pages, key, 2 * key, torch.tensor([3, _BLOCK + 1], device="cuda"))
    assert pages[0, 0, :, 3].eq(1).all()
    assert pages[1, 1, :, 1].eq(2).all()
    assert int(pages.count_nonzero()) == 2 * 2 * _KV_HEADS * _DIM


def test_blocks_of_another_type_are_converted_as_on_the_host_without_waiting() -> None:
    made = {device: _through_int8(device) for device in ("cuda", "cpu")}
    for on_cuda, on_host in zip(made["cuda"], made["cpu"], strict=True):
        assert torch.equal(on_cuda, on_host)


def _through_int8(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Float16 blocks of a device, what becomes of them in int8 on the host, and back again."""
    device = torch.device(name)
    plain, codes = PageShape(_KV_HEADS, _BLOCK, _DIM), PageShape(_KV_HEADS, _BLOCK, _DIM, 8)
    own, staged = (ReferenceKernels(device, shape, 1.0) for shape in (plain, codes))
    generator = torch.Generator().manual_seed(2)
    pages = torch.randn(2, 5, 2, _KV_HEADS, _BLOCK, _DIM, generator=generator)
    pages = pages.half().to(device)
    held = torch.zeros(2, 4, codes.quantized.page_bytes, dtype=torch.uint8)
    release = pin(held) if name == "cuda" else None
    ids, on_host = torch.tensor([4, 0, 1]), torch.tensor([2, 3, 0])
    copy = LinkCopies(device).copy
    _refuse_to_wait(name, refuse=True)
    try:
        convert_to_host(pages, ids, own, held, on_host, staged, copy)
        pages.zero_()
        convert_from_host(held, on_host, staged, pages, ids, own, copy)
    finally:
        _refuse_to_wait(name, refuse=False)
    back = pages.cpu()
    if release is not None:
        release()
    return held, back


def _refuse_to_wait(name: str, *, refuse: bool) -> None:
    if name == "cuda":
        torch.cuda.set_sync_debug_mode("error" if refuse else "default")


def test_sampling_draws_the_host_s_tokens() -> None:
    logits = torch.randn(6, 1000, generator=torch.Generator().manual_seed(1)) * 3
    n = logits.shape[0]
    rows = SamplingRows(
        logits_index=np.arange(n, dtype=np.int64),
        rows=np.arange(n, dtype=np.int32),
        greedy=False,
        temperature=np.full(n, 0.8, dtype=np.float32),
        top_p=np.full(n, 0.9, dtype=np.float32),
        min_p=np.zeros(n, dtype=np.float32),
        top_k=np.full(n, 50, dtype=np.int32),
        numbers=CounterNumbers(np.arange(n, dtype=np.uint64), np.arange(n, dtype=np.int64)),
        banned=np.zeros((0, 2), dtype=np.int64),
        bias=np.zeros((0, 2), dtype=np.int64),
        bias_values=np.zeros(0, dtype=np.float32),
        penalties=None,
        logprobs=None,
    )
    on_device = sample(logits.cuda(), rows).token_ids.cpu()
    assert on_device.tolist() == sample(logits, rows).token_ids.tolist()


def test_blocks_cross_the_link_as_they_are_by_copies_and_by_kernels() -> None:
    for block_size in (16, 4096):  # scattered and small; as large as a copy is worth
        here = torch.randn(3, 9, 2, _KV_HEADS, block_size, _DIM)
        back, there = torch.zeros_like(here), torch.zeros_like(here, device="cuda")
        there_ids, ids = torch.tensor([8, 1, 2, 5]), torch.tensor([0, 4, 5, 7])
        unpin = [pin(here), pin(back)]
        link = LinkCopies(there.device)
        link.copy(here, ids, there, there_ids)
        link.copy(there, there_ids, back, ids)
        torch.cuda.synchronize()
        for release in unpin:
            release()
        assert torch.equal(there[:, there_ids.cuda()].cpu(), here[:, ids])
        assert torch.equal(back[:, ids], here[:, ids])
        assert not back[:, [1, 2, 3, 6, 8]].any()


def test_blocks_cross_the_link_by_batches_where_the_driver_has_them() -> None:
    try:
        batches = BatchCopies()
    except NoBatchCopiesError as error:
        raise unittest.SkipTest(str(error)) from error
    here = torch.randn(3, 9, 2, _KV_HEADS, 16, _DIM)
    back, there = torch.zeros_like(here), torch.zeros_like(here, device="cuda")
    there_ids, ids = torch.tensor([8, 1, 2, 5]), torch.tensor([0, 4, 5, 7])
    unpin = [pin(here), pin(back)]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        link = LinkCopies(there.device, batches)
        link.copy(here, ids, there, there_ids)
        link.copy(there, there_ids, back, ids)
    torch.cuda.synchronize()
    for release in unpin:
        release()
    assert torch.equal(there[:, there_ids.cuda()].cpu(), here[:, ids])
    assert torch.equal(back[:, ids], here[:, ids])
    assert not back[:, [1, 2, 3, 6, 8]].any()
