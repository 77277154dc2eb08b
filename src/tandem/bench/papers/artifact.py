"""What NEO's evaluation told its engines, by the code that was published with the paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tandem.bench.papers.asked import around
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.models import MODELS
from tandem.bench.papers.published.apex import PublishedApex
from tandem.bench.papers.published.gpu_only import GpuOnly
from tandem.bench.papers.published.machine import LayerTimes, PublishedMachine, kv_blocks
from tandem.bench.papers.published.neo import PublishedNeo
from tandem.bench.papers.published.serving import PublishedScheduler, serve
from tandem.spec.workload import LengthDistribution, drawn_workload

PREDICTOR = "published policy over published baseline"
ALONE = "gpu-only"
_SCHEDULERS: dict[str, Callable[[PublishedMachine, LayerTimes], PublishedScheduler]] = {
    ALONE: GpuOnly,
    "neo": PublishedNeo,
    "apex": PublishedApex,
}
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Setting:
    """An engine's machine.

    Attributes:
        card: whose sizes the artifact has. instance: likewise, of the host's memory.
        accelerator, host: by name. model: of `MODELS`.
        host_bytes_per_s: what the host's cores read.
    """

    card: str
    instance: str
    accelerator: str
    host: str
    model: str
    host_bytes_per_s: float

    def machine(self, policy: str) -> PublishedMachine:
        """As its engine is started: a layer more of the accelerator's blocks is kept for prompts
        whose KV goes to the host; the baseline has all, and an eighth of the host's memory.
        """
        artifact = load_figures("neo")["artifact"]
        sizes = artifact[self.card]
        device, host = sizes["device_blocks"], sizes["host_gib"][self.instance] * _GIB
        if policy == ALONE:
            host *= artifact["baseline_share_of_swap_space"]
        else:
            layers = MODELS[self.model].num_layers
            device = device * layers // (layers + artifact["layers_of_blocks_kept_for_prompts"])
        return PublishedMachine(
            self.accelerator,
            self.host,
            self.model,
            self.host_bytes_per_s,
            device_blocks=device,
            host_blocks=kv_blocks(host, self.model),
            step_tokens=sizes["step_tokens"],
        )


@dataclass(frozen=True, slots=True)
class Job:
    """Requests that are there at once; the same every time.

    Attributes:
        requests: their number; 0: as many as in the artifact.
    """

    prompt: LengthDistribution
    generate: LengthDistribution
    requests: int = 0

    def giving(self, generate: int) -> "Job":
        """With about so many tokens out."""
        return replace(self, generate=around(generate))


@dataclass(frozen=True, slots=True)
class Pace:
    """Requests per second: `measured` as the artifact does, between two shares of the requests'
    ends; `whole`: of the whole job.
    """

    measured: float
    whole: float


def pace(setting: Setting, policy: str, job: Job) -> Pace:
    """What a policy of `apex`, `neo` and `ALONE` serves.

    Raises:
        ValueError: a request outgrows the machine's memory.
    """
    machine = setting.machine(policy)
    times = LayerTimes(machine.prices())
    artifact: dict[str, Any] = load_figures("neo")["artifact"]
    requests = job.requests or artifact["requests"]
    shapes = drawn_workload(job.prompt, job.generate, requests).requests
    served = serve(_SCHEDULERS[policy](machine, times), shapes, times)
    begin, end = artifact["throughput_between_shares_of_ends"]
    return Pace(served.requests_per_s(begin, end), served.requests_per_s())


def paces(setting: Setting, policies: Sequence[str], job: Job) -> dict[str, Pace]:
    """Of several policies."""
    return {policy: pace(setting, policy, job) for policy in policies}
