"""Strategies by name."""

from collections.abc import Callable

from tandem.scheduler.strategies.asymmetric import Asymmetric
from tandem.scheduler.strategies.auto import Auto
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.gpu_only import GpuOnly
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.spec.errors import ConfigError

_STRATEGIES: tuple[Callable[[], Strategy], ...] = (
    Auto,
    GpuOnly,
    RideAlong,
    Rendezvous,
    Asymmetric,
)


def make_strategy(name: str) -> Strategy:
    """The strategy of that name.

    Raises:
        ConfigError: there is none.
    """
    strategies = [make() for make in _STRATEGIES]
    for strategy in strategies:
        if strategy.name == name:
            return strategy
    known = ", ".join(strategy.name for strategy in strategies)
    raise ConfigError(f"unknown strategy '{name}'; use one of: {known}", param="strategy")
