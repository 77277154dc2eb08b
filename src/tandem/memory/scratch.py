"""Host memory that kernels and libraries take for themselves, beside activations. Pure."""

from tandem.memory.page import KVPageSpec
from tandem.memory.workspace import KERNEL_SCRATCH_BYTES
from tandem.spec.model import ModelSpec

LIBRARY_BYTES = 20 << 20
"""Code and heap that Python, torch and the compiled kernels touch only once steps run, the scratch
of the kernels' threads included; measured, 18 MiB."""

PINNED_LANE_BYTES = 16 << 20
"""Most of a lane's activations on their way over a link that lie in pinned memory: some hundreds of
rows that decode."""
PINNED_BYTES = 6 * PINNED_LANE_BYTES
"""Most that pinned activations of attention on the CPU, and numbers of a step, come to: those of
two steps in flight and what is sampled, rounded up to powers of two, of which torch keeps one of
each size. Not measured on a GPU yet."""
PINNED_LAYERS_BYTES = 4 * PINNED_LANE_BYTES
"""Likewise of layers and MLPs on the CPU, where there are such: the parts of two lanes, none of
which has more than a fourth of `PINNED_LANE_BYTES` there; and as much again for those of smaller
sizes, of which torch keeps a set for each power of two."""

KERNEL_BYTES = 3 << 20
"""What the kernel keeps for a process beside its page tables, and charges its control group for:
threads' stacks and the like, and files cached while they were read. The most that a group held
beyond what was predicted without it was 2.3 MiB (`tandem bench memory --cgroup`)."""

_KEPT_SHARE = 0.5
_MOST_KEPT_BYTES = 64 << 20  # beyond twice its largest threshold for own mappings, glibc trims
_FP32_BYTES = 4
_PAGE_BYTES, _ENTRY_BYTES = 4096, 8


def page_table_bytes(mapped_bytes: int) -> int:
    """What the kernel keeps to find so much memory in pages of the least size: an entry for each of
    them, in pages, and likewise for those. Huge pages need fewer.
    """
    size, pages = 0, -(-mapped_bytes // _PAGE_BYTES)
    while pages > 1:
        pages = -(-pages * _ENTRY_BYTES // _PAGE_BYTES)
        size += pages * _PAGE_BYTES
    return size


def kept_bytes(activation_bytes: int) -> int:
    """What the C library keeps of activations that were freed, since others have other sizes.

    The share is measured (`tandem bench memory`): up to 0.4 of the most that lay there at once,
    by chance, since freed memory is kept where something above it is in use. What conversions leave
    behind is given back when weights are loaded.
    """
    return min(int(_KEPT_SHARE * activation_bytes), _MOST_KEPT_BYTES)


def torch_attention_bytes(spec: ModelSpec, page: KVPageSpec, tokens: int, context: int) -> int:
    """Most that the torch kernels take in one attention call on the CPU: gathered keys and values,
    as they come and in float32, and, where scores are capped, all of them.

    Args:
        tokens: of a step. context: keys of the longest request.
    """
    elements = context * 2 * page.local_kv_heads * page.head_dim
    gathered = elements * 2 * _FP32_BYTES
    scores = min(tokens, context) * spec.num_heads * context * _FP32_BYTES
    scored = min(KERNEL_SCRATCH_BYTES, scores) if spec.attention_soft_cap else 0
    return min(KERNEL_SCRATCH_BYTES, gathered) + scored
