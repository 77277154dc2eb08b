"""Random situations for a scheduler: requests, arrivals, aborts, memory, order of execution."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from tests.support.script import Script
from tests.support.setups import Setup
from tests.support.step_prices import any_prices, slow_link
from tests.support.switching import Switching, SwitchingStrategy

from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

VOCAB = 50
EOS = 7
_SHARED = tuple((3 * i) % 40 + 2 for i in range(48))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A setup, what happens to it, and the plain setup whose tokens it must give.

    Attributes:
        switch_seed: of the choice among `strategies` at every step.
        disk_blocks: for which there is room on a disk, below what the host caches of prefixes; 0:
            no disk.
    """

    setup: Setup
    script: Script
    strategies: tuple[str, ...]
    switch_seed: int
    disk_blocks: int = 0

    def switching(self) -> SwitchingStrategy:
        """The strategy under test."""
        return Switching(self.strategies, self.switch_seed).make()

    def reference(self) -> Setup:
        """Everything on the device, ample memory, one step at a time, in program order."""
        return Setup(
            device_blocks=1024,
            block_size=16,
            max_num_seqs=16,
            overlap=False,
            prefix_caching=False,
            seed=self.setup.seed,
            eos_ids=self.setup.eos_ids,
        )


@st.composite
def sampling_params(draw: st.DrawFn) -> SamplingParams:
    """Greedy or not, with what the engine itself handles of everything else."""
    max_tokens = draw(st.integers(1, 24))
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=draw(st.sampled_from((0.0, 0.0, 0.7, 1.5))),
        seed=draw(st.none() | st.integers(0, 2**32)),
        ignore_eos=draw(st.booleans()),
    )
    if draw(st.booleans()):
        return params
    return replace(
        params,
        min_tokens=draw(st.integers(0, max_tokens)),
        stop_token_ids=draw(st.sampled_from(((), (11,), tuple(range(20, 31))))),
        repetition_penalty=draw(st.sampled_from((1.0, 1.3))),
        frequency_penalty=draw(st.sampled_from((0.0, 0.5))),
        logprobs=draw(st.sampled_from((None, 0, 3))),
        top_k=draw(st.sampled_from((0, 5))),
        logit_bias=draw(st.sampled_from(((), ((5, 3.0), (6, -100.0))))),
    )


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    """Often with a beginning that others have too."""
    shared = _SHARED[: draw(st.sampled_from((0, 0, 8, 16, 31, 48)))]
    own = draw(st.lists(st.integers(1, VOCAB - 1), min_size=0 if shared else 1, max_size=20))
    return shared + tuple(own)


@st.composite
def scripts(draw: st.DrawFn, max_requests: int = 8) -> Script:
    """Up to `max_requests` arriving over some steps, some of them aborted."""
    arrivals: dict[int, list[EngineRequest]] = {}
    aborts: dict[int, list[str]] = {}
    for number in range(draw(st.integers(1, max_requests))):
        request = EngineRequest(
            f"r{number}",
            draw(prompts()),
            draw(sampling_params()),
            priority=draw(st.sampled_from((0, 0, 0, -1, 2))),
        )
        step = max(arrivals, default=0) + draw(st.sampled_from((0, 0, 0, 1, 5)))
        arrivals.setdefault(step, []).append(request)
        if draw(st.integers(0, 3)) == 0:
            aborts.setdefault(step + draw(st.integers(0, 25)), []).append(request.request_id)
    return Script(arrivals, aborts)


@st.composite
def scenarios(draw: st.DrawFn, block_sizes: tuple[int, ...] = (2, 4, 16)) -> Scenario:
    """Any legal combination, memory mostly far too small for all requests together."""
    script = draw(scripts())
    block_size = draw(st.sampled_from(block_sizes))
    placement = draw(st.sampled_from(("auto", "auto", "device", "host", "split")))
    device, host, strategies = draw(_memory(placement, script.requests, block_size))
    setup = Setup(
        device_blocks=device,
        host_blocks=host,
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from((1, 3, 8))),
        max_num_batched_tokens=draw(st.sampled_from((8, 17, 256))),
        kv_placement=placement,
        max_host_seqs=draw(st.sampled_from((0, 1, 8))),
        max_device_seqs=draw(st.sampled_from((0, 0, 1, 3))),
        prompts_on_device=draw(st.booleans()),
        split_blocks=draw(st.sampled_from((0, 0, 1, 2, 99))),
        most_overtaken=draw(st.sampled_from((1, 2, 64))),
        preemption_mode=draw(st.sampled_from(("recompute", "swap", "auto", "mix"))),
        prefix_caching=draw(st.booleans()),
        host_prefix_share=draw(st.sampled_from((0.0, 0.3, 1.0))),
        executor=draw(st.sampled_from(("exact", "exact", "exact", "inline"))),
        executor_seed=draw(st.integers(0, 2**16)),
        overlap=draw(st.booleans()),
        launch_ahead_steps=draw(st.sampled_from((2, 2, 3))),
        max_cohorts=draw(st.sampled_from((1, 2, 3, 5))),
        max_cohort_rows=draw(st.sampled_from((1, 3, 256))),
        interposition_budget=draw(st.sampled_from((1, 2, 8))),
        seed=draw(st.integers(0, 3)),
        eos_ids=(EOS,),
        prices=draw(st.none() | any_prices(num_layers=2) | st.just(slow_link(num_layers=2))),
        tpot_bound_s=draw(st.sampled_from((None, None, 1e-3, 1.0))),
        ttft_bound_s=draw(st.sampled_from((None, None, 1e-3, 3.0, 30.0))),
    )
    caches = setup.prefix_caching and int(setup.host_blocks * setup.host_prefix_share) > 0
    disk_blocks = draw(st.sampled_from((0, 1, 8, 64))) if caches else 0
    return Scenario(setup, script, strategies, draw(st.integers(0, 2**16)), disk_blocks)


@st.composite
def _memory(
    draw: st.DrawFn, placement: str, requests: list[EngineRequest], block_size: int
) -> tuple[int, int, tuple[str, ...]]:
    """Blocks per tier, each request fitting alone, and the strategies that may serve them there."""
    tokens = [len(r.prompt_token_ids) + (r.sampling.max_tokens or 0) for r in requests]
    blocks = [-(-(count - 1) // block_size) for count in tokens]
    longest, slack = max(blocks), draw(st.integers(0, 6))
    if placement == "device":
        device, host = longest + slack, draw(st.sampled_from((0, 4, longest)))
    elif placement == "host":
        device, host = draw(st.integers(0, longest)), longest + slack
    elif placement == "split":
        device = draw(st.integers(0, longest))
        halves = [-(-len(r.prompt_token_ids) // block_size) // 2 for r in requests]
        host = slack + max(
            count - min(half, device) for count, half in zip(blocks, halves, strict=True)
        )
    else:
        device = draw(st.integers(0, longest + 4))
        host = draw(st.sampled_from((0, 2, longest))) + max(0, longest - device)
    legal = ["ride-along"]
    if host and placement != "device":
        legal += ["rendezvous", "asymmetric", "symmetric", "auto", "neo", "apex"]
        legal += ["rendezvous-ahead", "neo-published", "apex-published"]
    alone = (*legal, "gpu-only") if device >= longest else tuple(legal)
    if placement in ("auto", "device"):
        legal.append("gpu-only")
    chosen = draw(st.sampled_from(("all", *alone)))
    return device, host, tuple(legal) if chosen == "all" else (chosen,)
