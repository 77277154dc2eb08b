"""Strategies by name."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tandem.scheduler.strategies.asymmetric import Asymmetric
from tandem.scheduler.strategies.gpu_only import GpuOnly
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.scheduler.strategies.base import Strategy

# With all that they weigh, those that choose by prices are imported where they are used, and so is
# what is rarely asked for.


def _auto() -> "Strategy":
    from tandem.scheduler.strategies.auto import Auto

    return Auto()


def _symmetric() -> "Strategy":
    from tandem.scheduler.strategies.symmetric import Symmetric

    return Symmetric()


def _rendezvous_ahead() -> "Strategy":
    from tandem.scheduler.strategies.rendezvous_ahead import RendezvousAhead

    return RendezvousAhead()


def _neo() -> "Strategy":
    from tandem.scheduler.strategies.neo import Neo

    return Neo()


def _apex() -> "Strategy":
    from tandem.scheduler.strategies.apex import Apex

    return Apex()


def _neo_published() -> "Strategy":
    from tandem.scheduler.strategies.neo import NeoAsPublished

    return NeoAsPublished()


def _apex_published() -> "Strategy":
    from tandem.scheduler.strategies.apex import ApexAsPublished

    return ApexAsPublished()


_STRATEGIES: dict[str, "Callable[[], Strategy]"] = {
    "auto": _auto,
    **{each.name: each for each in (GpuOnly, RideAlong, Rendezvous, Asymmetric)},
    "symmetric": _symmetric,
    "rendezvous-ahead": _rendezvous_ahead,
    "neo": _neo,
    "apex": _apex,
    "neo-published": _neo_published,
    "apex-published": _apex_published,
}


def make_strategy(name: str) -> "Strategy":
    """The strategy of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in _STRATEGIES:
        known = ", ".join(_STRATEGIES)
        raise ConfigError(f"unknown strategy '{name}'; use one of: {known}", param="strategy")
    return _STRATEGIES[name]()
