"""What a scheduler is told once."""

from dataclasses import dataclass, field

from tandem.plan.sweep_layers import SweepChoice
from tandem.spec.config import KVPlacement, PreemptionMode

HALF = 0.5
"""Of a prompt, under placement `split`, where nothing is known of the tiers' rates."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits and choices of one scheduler; pool sizes come with the pools.

    Attributes:
        num_layers: layers of the model.
        max_model_len: most tokens of a request, prompt and output.
        max_len_is_planned: that is what a batch job's plan is for, not what the model can do.
        max_cohorts, max_cohort_rows: how many host-attention cohorts may be under way, how large.
        max_sampled_rows: that a sweep samples, in all lanes; 0: all that run.
        max_join_wait_s: how long the accelerator may wait for a cohort in a sweep.
        interposition_budget: most passes of its own that a cohort has in a sweep, where the
            strategy interposes any.
        layers: what sweeps do with layers in host memory.
        max_host_seqs: under `auto`, how many requests may lie on the host for want of room on the
            device; others wait.
        max_device_seqs: beside such requests, how many others may be there; 0: as many as there is
            memory for. Their KV grows, and where too many began, it would go on on the host.
        prompts_on_device: requests that may lie on the host for want of room read their prompts on
            the device, and leave it then.
        tpot_bound_s: how long a step should take at most, where steps are chosen by predicted time;
            None: as long as it pays.
        ttft_bound_s: within which a request's first token is wanted from its arrival: whose prompts
            can be read by then come first; None: all in their rank.
        split_blocks: of a request that could outgrow the device's pool, leading blocks to keep
            there; 0: half of the pool, or all of it where `max_num_seqs` is 1.
        split_share: of each prompt, what lies on the device under placement `split`; the scheduler
            replaces it where it has prices, and again where these are corrected by much.
        most_overtaken: times that a request is overtaken by others of a higher priority that came
            later, between two of its tokens, before it has that priority, too.
        calibrate: correct what steps are said to take by what they are reported to take.
        host_prefix_share: most of the host's pool that copies of what the device's prefix cache
            would evict may take; 0: none are made, and prefixes stay in their tier.
        cohort_layers: at which cohorts leave the sweep, ascending: those that the accelerator
            computes; a cohort's cursor is one of them.
    """

    num_layers: int
    max_model_len: int
    block_size: int = 64
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    max_num_queued_reqs: int | None = None
    kv_placement: KVPlacement = "auto"
    max_host_seqs: int = 0
    max_device_seqs: int = 0
    prompts_on_device: bool = False
    preemption_mode: PreemptionMode = "recompute"
    launch_ahead_steps: int = 2
    max_cohorts: int = 1
    max_cohort_rows: int = 256
    max_sampled_rows: int = 0
    max_join_wait_s: float = 0.002
    interposition_budget: int = 0
    tpot_bound_s: float | None = None
    ttft_bound_s: float | None = None
    split_blocks: int = 0
    split_share: float = HALF
    most_overtaken: int = 64
    host_prefix_share: float = 0.0
    calibrate: bool = False
    seed: int = 0
    max_len_is_planned: bool = False
    layers: SweepChoice = field(default_factory=SweepChoice)
    cohort_layers: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        on_cpu = set(self.layers.usual.on_cpu)
        stops = tuple(layer for layer in range(self.num_layers) if layer not in on_cpu)
        object.__setattr__(self, "cohort_layers", stops)
