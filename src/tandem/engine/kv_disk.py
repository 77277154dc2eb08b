"""The disk that an engine keeps cached prefixes on: what its blocks are of, and how many fit."""

import hashlib
from pathlib import Path

from tandem.engine.building.scheduler_options import host_prefix_share
from tandem.memory.page import KVPageSpec
from tandem.models.model_fingerprint import fingerprint_model
from tandem.plan.online import OnlinePlan
from tandem.runtime.page_file import PageFile
from tandem.runtime.page_folder import Layout
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.units import GIB, parse_size

_DEFAULT_BYTES = 16 * GIB


def open_kv_disk(
    config: EngineConfig, spec: ModelSpec, precision: Precision, page: KVPageSpec, directory: Path
) -> PageFile | None:
    """The files below `--kv-disk`, if there is one; owned by the caller.

    Args:
        spec: with the rotation that requests get.
        directory: of the model.

    Raises:
        ConfigError: the folder cannot be used, or the size does not hold a block.
    """
    if config.kv_disk is None:
        return None
    size_bytes = _DEFAULT_BYTES
    if config.kv_disk_size is not None:
        size_bytes = parse_size(config.kv_disk_size, param="kv_disk_size")
    layout = block_layout(config, spec, precision, page, directory)
    return PageFile(Path(config.kv_disk), layout, page.bytes_per_block, size_bytes)


def require_host_prefixes(
    config: EngineConfig, plan: OnlinePlan, hardware: HardwareSpec | None
) -> None:
    """Beside an accelerator the disk keeps what the host's memory has of the prefix cache.

    Raises:
        ConfigError: nothing of it is for that.
    """
    if int(host_prefix_share(config, plan, hardware) * plan.host_blocks) < 1:
        raise ConfigError(
            f"--kv-disk {config.kv_disk} keeps what host memory has of the prefix cache, and no "
            f"KV block of its {plan.host_blocks} may be used for that; raise --cpu-memory or "
            "--host-prefix-share",
            param="kv_disk",
        )


def block_layout(
    config: EngineConfig, spec: ModelSpec, precision: Precision, page: KVPageSpec, directory: Path
) -> Layout:
    """All that a block's bytes depend on beside its tokens and those before them.

    The model is told by its files, not by its name. Two machines, or kernels, may differ in
    rounding, as they do in what they compute.
    """
    weights = f"random weights of seed {config.seed}" if config.load_format == "dummy" else ""
    return {
        "model": _hash(fingerprint_model(directory) + weights),
        "precision": str(precision),
        "rotation": _hash(repr(spec.rope and (spec.rope.theta, spec.rope.divisors))),
        "block size": page.block_size,
        "KV type": str(page.dtype),
        "layers": page.num_layers,
        "KV heads": page.num_kv_heads,
        "head size": page.head_dim,
        "rank": f"{page.rank} of {page.world_size}",
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
