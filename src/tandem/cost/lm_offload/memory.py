"""What an offloading policy takes of each memory."""

from dataclasses import replace

from tandem.cost.lm_offload.workload import BASE_BITS, OffloadPolicy, OffloadWorkload
from tandem.cost.tier_bytes import TierBytes

_BYTE_BITS = 8


def offload_memory(
    workload: OffloadWorkload, policy: OffloadPolicy, embedding_bytes: float = 0.0
) -> TierBytes:
    """Bytes when the last token is generated.

    The accelerator holds its share of everything, a layer of weights in 16 bits twice (computed and
    coming), and one batch's keys, values and activations of one layer where they cross; the host
    holds the rest, pinned where it crosses the link.

    Args:
        embedding_bytes: embeddings and head, on the accelerator.
    """
    base = BASE_BITS / _BYTE_BITS
    weights = workload.layers * workload.layer_weights
    context = workload.prompt + workload.generate
    kv = 2.0 * workload.layers * context * workload.kv_size * workload.rows
    hosted_weights = weights * policy.weights_on_host * policy.weight_bits / _BYTE_BITS
    hosted_kv = kv * policy.cache_on_host * policy.kv_bits / _BYTE_BITS
    hosted_activations = workload.activations * policy.activations_on_host * base
    crossing = 0.0 if policy.attention_on_cpu else policy.cache_on_host
    resident = weights * (1 - policy.weights_on_host) * policy.resident_weight_bits / _BYTE_BITS
    buffers = 2 * workload.layer_weights * base if hosted_weights else 0.0
    buffers += kv * crossing * base / workload.layers / workload.batches
    accelerator = resident + buffers + embedding_bytes
    accelerator += kv * (1 - policy.cache_on_host) * base
    accelerator += workload.activations * base * (1 - policy.activations_on_host)
    accelerator += workload.activations * base / workload.batches
    stays = hosted_kv if policy.attention_on_cpu else 0.0
    pinned = hosted_weights + hosted_activations + hosted_kv - stays
    return TierBytes(accelerator, pinned_bytes=pinned, pageable_bytes=stays)


def least_weights_on_host(
    workload: OffloadWorkload,
    policy: OffloadPolicy,
    accelerator_bytes: float,
    embedding_bytes: float = 0.0,
) -> float | None:
    """The smallest `wc` that fits the accelerator; None if even 1 does not fit.

    Attention on the CPU frees accelerator memory, so that fewer weights are offloaded: the reverse
    of what equations 8 and 9 say.
    """

    def needed(share: float) -> float:
        moved = replace(policy, weights_on_host=share)
        return offload_memory(workload, moved, embedding_bytes).accelerator_bytes

    if needed(0.0) <= accelerator_bytes:
        return 0.0
    # Above 0 the need falls linearly: two buffers are there from the first streamed weight on.
    full = needed(1.0)
    if full > accelerator_bytes:
        return None
    weights = workload.layers * workload.layer_weights
    return 1 - (accelerator_bytes - full) / (weights * policy.resident_weight_bits / _BYTE_BITS)
