"""What to change where something does not fit: the nearest settings that do, found by trying. Pure.

Formulas for them would repeat what every choice on the way to a plan does. A plan takes
milliseconds, and nobody waits for anything else when it is refused.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.host_room import NoRoomError
from tandem.spec.config import EngineConfig
from tandem.spec.units import MIB, TIB

_MOST_BYTES = 16 * TIB
"""Of memories whose limit is not known."""
Fits = Callable[[EngineConfig, Capacities], bool]


def nearest_settings(
    config: EngineConfig, capacities: Capacities, fits: Fits, refusal: NoRoomError | None = None
) -> str:
    """Each flag that mends it alone, with its nearest value; both memories where that of the host
    alone does not, and more of the accelerator's beside less of the host's where nothing else does.

    Args:
        config, capacities: that do not fit.
        fits: whether others do.
        refusal: where the host cannot hold all that would lie there, so that less may do.
    """
    search = _Search(config, capacities, fits)
    less = () if refusal is None else search.less_memory(refusal)
    found = [*less, *search.more_memory(), *search.less_work()]
    found = found or [*search.more_beside_less()]
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
        device = self._least_device_bytes(self._with_all_of_host)
        if device is None or (alone_bytes is not None and alone_bytes <= device):
            return
        there = replace(self._capacities, device_bytes=device)
        if self._fits(self._config, there):
            yield f"--gpu-memory {_mib(device)} or more"
            return
        host = self._least_host_bytes(there)
        if host is not None:
            yield f"--gpu-memory {_mib(device)} with --cpu-memory {_mib(host)} or more"

    @property
    def _with_all_of_host(self) -> Capacities:
        most = self._capacities.host_limit_bytes or _MOST_BYTES
        return replace(self._capacities, host_bytes=most, elastic=True)

    def more_beside_less(self) -> Iterator[str]:
        """What the accelerator lacks, if the host has no room for all that was asked for beside."""
        if self._on_host:
            return
        device = self._least_device_bytes(self._with_all_of_host)
        if device is None:
            return
        there = replace(self._capacities, device_bytes=device, elastic=False)
        host = self._most_bytes(there.host_bytes, there.host_bytes, there.with_host_memory)
        if host is not None:
            yield f"--gpu-memory {_mib(device)} with --cpu-memory {_mib(host)} at most"

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
        if self._on_host:
            return self._least_host_bytes(capacities)

        def enough(size: int) -> bool:
            return self._fits(self._config, replace(capacities, device_bytes=size))

        return _least(capacities.device_bytes, capacities.device_limit_bytes, enough)

    def _least_host_bytes(self, capacities: Capacities) -> int | None:
        """As little of what `--cpu-memory` bounds as is enough.

        Sought as if less could be taken than is allowed, so that no size is too much; but what is
        asked for is taken, so what was found must fit as it is.
        """
        limit = capacities.device_limit_bytes if self._on_host else capacities.host_limit_bytes

        def enough(size: int, *, elastic: bool = True) -> bool:
            there = replace(capacities, elastic=elastic).with_host_memory(size)
            return self._fits(self._config, there)

        found = _least(capacities.host_memory_bytes, limit, enough)
        return found if found is not None and enough(found, elastic=False) else None

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
