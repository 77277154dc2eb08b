"""The option that is simulated, where a planner has chosen it."""

from tandem.planner.option import Option
from tandem.simulator.build import Planned


def option_of(planned: Planned) -> Option:
    """Of a plan that is not from a file."""
    assert planned.option is not None
    return planned.option
