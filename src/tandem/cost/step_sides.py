"""Who is at work in a step, and for how long: parts of what a price list says of it."""

from typing import NamedTuple


class StepSides(NamedTuple):
    """Seconds of a step by who is at work, each by itself.

    Attributes:
        cpu_s: attention on the CPU. main_s: the accelerator's for the main lane. stages_s: for each
            cohort.
    """

    cpu_s: float
    main_s: float
    stages_s: tuple[float, ...]


class StageTimes(NamedTuple):
    """A layer's stages of a cohort: in a pass of its own, beside others; and its head."""

    alone_s: float
    shared_s: float
    head_s: float
