"""How long a request may be: what was asked for, or what fits. Pure."""

from tandem.memory.budget import MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.memory.sizing import PoolSizes, request_too_long
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.tier import TIERS, Tier


def wanted_tokens(config: EngineConfig, spec: ModelSpec) -> int:
    """Tokens of the longest request, if memory allows.

    Raises:
        ConfigError: more were asked for than the model has positions.
    """
    if config.max_model_len is None:
        return spec.max_positions
    if config.max_model_len > spec.max_positions:
        raise ConfigError(
            f"max_model_len {config.max_model_len} is beyond the model's {spec.max_positions} "
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
