"""Whether weights of 8-bit floating point (e4m3) stay so. Pure.

Triton's kernels read them, on a GPU of any generation, and so do torch's where a GPU's memory holds
them; the compiled kernels of the CPU do not. So they stay where nothing else computes by them.
"""

from tandem.spec.config import EngineConfig


def reason_against_fp8(
    config: EngineConfig, kind: str, lacking: tuple[str, ...], *, in_blocks: bool = False
) -> str | None:
    """Why FP8 becomes wider as it is loaded, to be said after "since"; None: it stays.

    Args:
        kind: of the accelerator.
        lacking: what is said of a GPU whose Triton cannot run; nothing if it can.
        in_blocks: the engine is one of blocks of batches, of which the CPU may compute layers.
    """
    if kind != "cuda":
        return "the CPU's kernels read no FP8"
    if lacking:
        return "Triton's kernels, which read FP8, cannot run here"
    if in_blocks:
        return "plans of batch jobs count it so"
    if config.placement is not None:
        return "layers of --placement may be the CPU's, whose kernels read no FP8"
    if config.host_layers in ("cpu", "mlp"):
        return f"--host-layers {config.host_layers} has the CPU compute, whose kernels read no FP8"
    return None
