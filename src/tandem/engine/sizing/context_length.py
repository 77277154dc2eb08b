"""How long a request may be: what was asked for, or what fits. Pure."""

from tandem.memory.budget import MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.memory.sizing import PoolSizes, request_too_long
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.tier import TIERS, Tier


def model_for_length(
    spec: ModelSpec, max_model_len: int | None
) -> tuple[ModelSpec, tuple[str, ...]]:
    """The model with the rotation that requests of that length need, and what to say about it.

    Args:
        max_model_len: None: what the model does without being rotated otherwise.
    """
    if spec.rope is None or spec.longest_positions == spec.max_positions:
        return spec, ()
    kind, exact = spec.rope.kind, spec.max_positions
    chosen = spec.for_length(max_model_len)
    if chosen is spec:
        return spec, (
            f"rotary scaling '{kind}': up to {exact} tokens per request; --max-model-len up to "
            f"{spec.longest_positions} rotates all requests for that length",
        )
    return chosen, (
        f"rotary scaling '{kind}' for {max_model_len} tokens, in shorter requests too; without "
        f"--max-model-len requests of up to {exact} tokens are rotated as the model was trained",
    )


def wanted_tokens(config: EngineConfig, spec: ModelSpec) -> int:
    """Tokens of the longest request, if memory allows.

    Raises:
        ConfigError: more were asked for than the model has positions.
    """
    if config.max_model_len is None:
        return spec.max_positions
    if config.max_model_len > spec.max_positions:
        raise ConfigError(
            f"max_model_len {config.max_model_len} is beyond the model's {spec.longest_positions} "
            "positions; lower it",
            param="max_model_len",
        )
    return config.max_model_len


def longest_request(
    config: EngineConfig,
    page: KVPageSpec,
    sizes: PoolSizes,
    wanted: int,
    device: MemoryBudget,
    host: MemoryBudget,
) -> tuple[int, tuple[str, ...]]:
    """The longest request to accept: what is wanted, or what fits, and then a note.

    Raises:
        ShortOfMemoryError: what was asked for does not fit, or nothing does.
    """
    # the last token of a sequence needs no KV
    tiers = _usable_tiers(config)
    fitting = sum(sizes.of(tier) for tier in tiers) * page.block_size + 1
    if fitting >= wanted:
        return wanted, ()
    if config.max_model_len is None and fitting > page.block_size:
        note = (
            f"context limited to {fitting} of {wanted} tokens by memory for the KV cache "
            f"({sizes.device_blocks} device and {sizes.host_blocks} host blocks of "
            f"{page.block_size})"
        )
        return fitting, (note,)
    raise request_too_long(page, device, host, sizes, wanted - 1, tiers)


def _usable_tiers(config: EngineConfig) -> tuple[Tier, ...]:
    """Whose blocks one request may use, alone in the engine."""
    if config.strategy == "gpu-only" or config.kv_placement == "device":
        return (Tier.DEVICE,)
    return (Tier.HOST,) if config.kv_placement == "host" else TIERS
