"""How long a job takes whose requests are all there at once, lived through in coarse steps.

They begin together, grow in step, and come near their ends together: memory runs out, the last are
preempted and computed again, and those that follow are in step, too. A steady state knows nothing
of it. Here requests are admitted, grow and are preempted as the scheduler has it, but up to a block
of tokens at a time, and sweeps take as long as a few that were timed say. A request may stand for
several that are nearly alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.planner import native
from tandem.planner.native_waves import native_job
from tandem.planner.wave_job import WaveJob
from tandem.spec.workload import RequestShape

SweepS = Callable[[float, float, float], float]
"""Seconds of a sweep with so many tokens in KV on the device and on the host that it attends to,
and so many tokens of prompts.
"""


@dataclass(frozen=True, slots=True)
class Home:
    """Where requests lie.

    Attributes:
        blocks: of its pool. most: requests that may be there.
        reserves: whether the growth of those that run is kept free while another one begins.
        sweeps_per_token: of a request there.
        sweeps_per_prompt: at least, from one request's prompt to the next one's, where they are
            read elsewhere and leave. sweeps_leaving: after its prompt, for which a request decodes
            nothing.
    """

    blocks: int
    most: int
    reserves: bool
    sweeps_per_token: float = 1.0
    sweeps_per_prompt: float = 0.0
    sweeps_leaving: float = 0.0


@dataclass(frozen=True, slots=True)
class Wave:
    """What an engine admits by, in blocks of `block_size` tokens.

    Attributes:
        homes: the device and the host; requests go to the first that has room.
        places: requests that run at once. prompt_tokens: of a sweep, at most.
        each: requests that one stands for; blocks, places and `prompt_tokens` are a part's, too.
    """

    homes: tuple[Home, Home]
    places: int
    block_size: int
    prompt_tokens: float
    each: float = 1.0

    def job_s(self, shapes: Sequence[RequestShape], sweep_s: SweepS) -> float:
        """Until the last of these requests has ended."""
        return self.live_through(shapes, sweep_s).job_s

    def live_through(self, shapes: Sequence[RequestShape], sweep_s: SweepS) -> "LivedJob":
        """A job of these requests."""
        if native.available():
            return LivedJob(*native_job(self, shapes, sweep_s))
        job = WaveJob(self, shapes, sweep_s)
        return LivedJob(job.run(), job.begun_s, job.decoding_s, job.homes)


@dataclass(frozen=True, slots=True)
class LivedJob:
    """When what happened to its requests, by their numbers.

    Attributes:
        job_s: until the last has ended. begun_s: when each has begun for the first time.
        decoding_s: from its first token to its last. homes: where it has ended.
    """

    job_s: float
    begun_s: Sequence[float]
    decoding_s: Sequence[float]
    homes: Sequence[int]

    @property
    def half_s(self) -> float:
        """From when the first half has begun until all have."""
        return self.begun_s[-1] - self.begun_s[len(self.begun_s) // 2 - 1]
