"""Which numbers of tokens a KV block may hold, for plans and for engines alike."""

from tandem.spec.errors import ConfigError

BLOCK_SIZES = (16, 32, 64, 128, 256)
DEFAULT_BLOCK_SIZE = 64


def require_block_size(tokens: int) -> None:
    """A GPU's kernels read powers of two at once.

    Raises:
        ConfigError: another number of them.
    """
    if tokens not in BLOCK_SIZES:
        *fewer, most = BLOCK_SIZES
        raise ConfigError(
            f"block_size must be {', '.join(map(str, fewer))} or {most} tokens, not {tokens}",
            param="block_size",
        )
