"""Strategies by name."""

from tandem.scheduler.strategies.asymmetric import Asymmetric
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.gpu_only import GpuOnly
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.strategies.ride_along import RideAlong
from tandem.spec.errors import ConfigError

_STRATEGIES: tuple[type[GpuOnly] | type[RideAlong] | type[Rendezvous] | type[Asymmetric], ...] = (
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
    for strategy in _STRATEGIES:
        if strategy.name == name:
            return strategy()
    known = ", ".join(strategy.name for strategy in _STRATEGIES)
    raise ConfigError(f"unknown strategy '{name}'; use one of: {known}", param="strategy")
