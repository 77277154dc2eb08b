"""How long a request may be: what was asked for, or what fits. Pure."""

from tandem.memory.budget import MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.memory.sizing import PoolSizes, describe_block
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.units import format_size


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
        ConfigError: what was asked for does not fit, or nothing does.
    """
    # the last token of a sequence needs no KV
    fitting = _usable(config, sizes) * page.block_size + 1
    if fitting >= wanted:
        return wanted, ()
    if config.max_model_len is None and fitting > page.block_size:
        note = (
            f"context limited to {fitting} of {wanted} tokens by memory for the KV cache "
            f"({sizes.device_blocks} device and {sizes.host_blocks} host blocks of "
            f"{page.block_size})"
        )
        return fitting, (note,)
    left = format_size(max(0, device.left_bytes) + max(0, host.left_bytes))
    raise ConfigError(
        f"memory too small: one request of {wanted} tokens needs "
        f"{page.blocks_for_tokens(wanted - 1)} KV blocks of {describe_block(page)}, "
        "but "
        f"only {_usable(config, sizes)} fit in the {left} left beside {device.describe_used()}; "
        "raise --gpu-memory or --cpu-memory, or lower --max-model-len",
        param="max_model_len",
    )


def _usable(config: EngineConfig, sizes: PoolSizes) -> int:
    """Blocks that one request may use, alone in the engine."""
    if config.strategy == "gpu-only" or config.kv_placement == "device":
        return sizes.device_blocks
    return sizes.host_blocks if config.kv_placement == "host" else sizes.total_blocks
