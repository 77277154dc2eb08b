"""What to change where memory ran out although it had been planned: others took it meanwhile."""

from tandem.devices.memory_errors import exhausted_memory
from tandem.spec.errors import ConfigError

_LESS = {
    "device": "--gpu-memory (or raise --gpu-margin), --max-num-batched-tokens or --max-num-seqs",
    "host": "--cpu-memory, --max-num-batched-tokens or --max-num-seqs",
}


def exhausted_remedy(error: BaseException) -> str | None:
    """In words; None if the error is about something else."""
    where = exhausted_memory(error)
    if where is None:
        return None
    return (
        f"other programs may have taken {where} memory meanwhile: end them, or lower {_LESS[where]}"
    )


def exhausted_while_loading(error: BaseException) -> ConfigError | None:
    """A line for people; None if the error is about something else."""
    where = exhausted_memory(error)
    if where is None:
        return None
    param = "gpu_memory" if where == "device" else "cpu_memory"
    return ConfigError(
        f"{where} memory ran out while the engine was built; {exhausted_remedy(error)}", param=param
    )
