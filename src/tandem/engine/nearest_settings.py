"""What to change where something does not fit: the nearest settings that do, found by trying. Pure.

Formulas for them would repeat what every choice on the way to a plan does. A plan takes
milliseconds, and nobody waits for anything else when it is refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tandem.engine.capacities import Capacities
from tandem.engine.host_room import NoRoomError
from tandem.spec.config import EngineConfig
from tandem.spec.units import MIB, TIB

_MOST_BYTES = 16 * TIB
"""Of memories whose limit is not known."""
Fits = Callable[[EngineConfig, Capacities], bool]


def nearest_settings(
    config: EngineConfig, capacities: Capacities, fits: Fits, refusal: NoRoomError | None = None
) -> str:
    """Each flag that mends it alone, with its nearest value; both memories where that of the host
    alone does not.

    Args:
        config, capacities: that do not fit.
        fits: whether others do.
        refusal: where the host cannot hold all that would lie there, so that less may do.
    """
    search = _Search(config, capacities, fits)
    less = () if refusal is None else search.less_memory(refusal)
    found = [*less, *search.more_memory(), *search.less_work()]
    if not found:
        return (
            "no more memory that this machine has would do; use a smaller model, or --quantization"
        )
    return f"use {', or '.join(found)}"


class _Search:
    def __init__(self, config: EngineConfig, capacities: Capacities, fits: Fits) -> None:
        self._config, self._capacities, self._fits = config, capacities, fits
        self._on_host = capacities.device_location == "host"

    def less_memory(self, refusal: NoRoomError) -> Iterator[str]:
        """Where what was asked for leaves too little room beside it in the host's memory."""
        there = self._capacities
        if not there.elastic:
            host = self._most_bytes(
                refusal.left_bytes, there.host_memory_bytes, there.with_host_memory
            )
            if host is not None:
                yield f"--cpu-memory {_mib(host)} at most"
        if there.device_in_host:
            device = self._most_bytes(
                refusal.device_left_bytes, there.device_bytes, there.with_emulated
            )
            if device is not None:
                yield f"--gpu-memory {_mib(device)} at most"

    def more_memory(self) -> Iterator[str]:
        """Of one kind, or of both."""
        name = "--cpu-memory" if self._on_host else "--gpu-memory"
        device = self._least_device_bytes(self._capacities)
        if device is not None:
            yield f"{name} {_mib(device)} or more"
        if self._on_host:
            return
        host = self._least_host_bytes(self._capacities)
        if host is not None:
            yield f"--cpu-memory {_mib(host)} or more"
        else:
            yield from self._both_memories(device)

    def _both_memories(self, alone_bytes: int | None) -> Iterator[str]:
        """As little of the accelerator's as is enough with all that the host has.

        Args:
            alone_bytes: of the accelerator's that are enough with the host's as it is.
        """
        most = replace(
            self._capacities,
            host_bytes=self._capacities.host_limit_bytes or _MOST_BYTES,
            elastic=True,
        )
        device = self._least_device_bytes(most)
        if device is None or (alone_bytes is not None and alone_bytes <= device):
            return
        host = self._least_host_bytes(replace(self._capacities, device_bytes=device))
        if host is not None:
            yield f"--gpu-memory {_mib(device)} with --cpu-memory {_mib(host)} or more"

    def less_work(self) -> Iterator[str]:
        """Shorter requests, smaller steps, or another home of layers."""
        config = self._config
        if config.max_model_len is not None:
            tokens = self._most("max_model_len", 1, config.max_model_len)
            if tokens is not None:
                yield f"--max-model-len {tokens} or less"
        tokens = self._most(
            "max_num_batched_tokens", config.max_num_seqs, config.max_num_batched_tokens
        )
        if tokens is not None:
            yield f"--max-num-batched-tokens {tokens} or less"
        on_cpu = replace(config, host_layers="cpu")
        has_choice = config.placement is None and on_cpu != config and not self._on_host
        if has_choice and self._fits(on_cpu, self._capacities):
            yield "--host-layers cpu"

    def _most_bytes(
        self, guess_bytes: int, refused_bytes: int, with_bytes: Callable[[int], Capacities]
    ) -> int | None:
        """Whole MiB below those that were refused, as many as possible, sought from a guess on."""

        def fits(size: int) -> bool:
            return self._fits(self._config, with_bytes(size * MIB))

        over = refused_bytes // MIB + 1
        low = max(0, min(guess_bytes // MIB, over - 1))
        high, step = over, 1
        if fits(low):
            while low + step < over and fits(low + step):
                low, step = low + step, 2 * step
            high = min(over, low + step)
        else:
            while not fits(low):
                if low == 0:
                    return None
                high, low, step = low, max(0, low - step), 2 * step
        return -_first(lambda size: fits(-size), -high, -low) * MIB

    def _least_device_bytes(self, capacities: Capacities) -> int | None:
        elastic = capacities.elastic or self._on_host

        def enough(size: int) -> bool:
            return self._fits(self._config, replace(capacities, device_bytes=size, elastic=elastic))

        return _least(capacities.device_bytes, capacities.device_limit_bytes, enough)

    def _least_host_bytes(self, capacities: Capacities) -> int | None:
        def enough(size: int) -> bool:
            return self._fits(self._config, replace(capacities, host_bytes=size, elastic=True))

        return _least(capacities.host_bytes, capacities.host_limit_bytes, enough)

    def _most(self, option: str, least: int, refused: int) -> int | None:
        """The largest number below `refused` that fits, not below `least`."""

        def fits(number: int) -> bool:
            return self._fits(replace(self._config, **{option: number}), self._capacities)

        if refused <= least or not fits(least):
            return None
        return -_first(lambda number: fits(-number), -refused, -least)


def _least(
    refused_bytes: int, limit_bytes: int | None, enough: Callable[[int], bool]
) -> int | None:
    """Whole MiB that are enough and not beyond the limit, as few as possible."""
    limit = (_MOST_BYTES if limit_bytes is None else limit_bytes) // MIB
    low, high = refused_bytes // MIB, refused_bytes // MIB + 1
    while high < limit and not enough(high * MIB):
        low, high = high, 2 * high
    high = min(high, limit)
    if high <= low or not enough(high * MIB):
        return None
    return _first(lambda size: enough(size * MIB), low, high) * MIB


def _first(good: Callable[[int], bool], bad: int, known: int) -> int:
    """Between a number that is not good and a greater one that is known to be."""
    while known - bad > 1:
        middle = (bad + known) // 2
        if good(middle):
            known = middle
        else:
            bad = middle
    return known


def _mib(size_bytes: int) -> str:
    return f"{size_bytes // MIB}MiB"
