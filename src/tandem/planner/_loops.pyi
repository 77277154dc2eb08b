"""Types of the planner's compiled extension (`native/planner/module.cpp`)."""

from collections.abc import Callable, Sequence

Home = tuple[int, int, int, float, float, float]
"""Blocks, most requests, most blocks reserved, sweeps per token, per prompt, and leaving."""
Demands = Sequence[tuple[float, float, float]]
"""Seconds alone, bytes per second of the host's memory, share of the link."""
Totals = list[float]
"""Time, how long each queue has been busy, bytes moved in the host's memory."""

class Wave:
    def __init__(
        self,
        device: Home,
        host: Home,
        places: int,
        block_size: int,
        prompt_tokens: float,
        each: float,
    ) -> None: ...

class SweepTimes:
    def __init__(
        self,
        least_s: float,
        device_token_s: float,
        host_token_s: float,
        prompts: Sequence[tuple[float, float]],
        hosted_s: float | None,
        experts: tuple[float, float, float] | None,
    ) -> None: ...
    def __call__(
        self, device_tokens: float, host_tokens: float, prompt_tokens: float, /
    ) -> float: ...

def job(
    wave: Wave,
    shapes: Sequence[tuple[int, int]],
    sweep_s: SweepTimes | Callable[[float, float, float], float],
) -> tuple[float, list[float], list[float], list[int]]: ...

class Schedule:
    def __init__(
        self,
        by_queue: Sequence[Sequence[int]],
        waits: Sequence[Sequence[tuple[int, int]]],
        costs: Sequence[Sequence[tuple[int, int]]],
        cost_of: Sequence[int],
        cohorts: Sequence[tuple[int, int, int | None, int | None]],
        telling: Sequence[int] = ...,
    ) -> None: ...

class ProgramQueues:
    def __init__(self, dram_bytes_per_s: float, both_ways: float) -> None: ...
    @property
    def now_s(self) -> float: ...
    @property
    def busy_s(self) -> list[float]: ...
    @property
    def dram_bytes(self) -> float: ...
    @property
    def hidden_s(self) -> float: ...
    def submit(
        self,
        schedule: Schedule,
        demands: Demands,
        not_before_s: float,
        lanes: Sequence[tuple[int, int, bool]],
        max_wait_s: float | None,
    ) -> int: ...
    def reprice(self, program: int, schedule: Schedule, demands: Demands) -> None: ...
    def advance(
        self,
        until_s: float,
        price: Callable[[int, Sequence[int]], tuple[Schedule, Demands]],
    ) -> list[tuple[int, int, bool]]: ...
    def release(self, cohort: int) -> None: ...

def steady_sweep(
    sweeps: Sequence[tuple[Schedule, Demands, Sequence[int]]],
    first: int,
    cycle: int,
    dram_bytes_per_s: float,
    both_ways: float,
) -> tuple[Totals, Totals]: ...
def repeated_sweep(
    schedule: Schedule,
    demands: Demands,
    first: int,
    most_sweeps: int,
    same: float,
    dram_bytes_per_s: float,
    both_ways: float,
) -> tuple[Totals, Totals]: ...
