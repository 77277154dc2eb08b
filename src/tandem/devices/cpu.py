"""What this machine's processor can do."""

import torch


def has_amx() -> bool:
    """True if matrix tiles make bfloat16 products several times as fast as fp32."""
    return torch.cpu._is_amx_tile_supported()
