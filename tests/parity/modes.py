"""The ways in which an engine can come to the same tokens, and the proof that it went that way."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.setups import Setup
from tests.support.step_prices import round_prices
from tests.support.switching import Switching

from tandem.engine.stats import EngineStats
from tandem.plan.strategy_names import STRATEGIES
from tandem.spec.kv_type import KVType


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run a batch of prompts.

    Attributes:
        happened: whether the statistics show it.
        runs: how often the prompts are run on the same engine; parity holds for each run.
        together: all prompts at once; otherwise one after another.
        compiled: the stages run on the compiled kernels, where there are any; otherwise in torch.
    """

    id: str
    setup: Setup
    happened: Callable[[EngineStats], bool]
    runs: int = 1
    together: bool = True
    compiled: bool = True

    def setup_with(self, kv: KVType) -> Setup:
        """The setup, with a KV cache of this type."""
        return replace(self.setup, kv=kv)


_AMPLE = 32  # blocks: more than all prompts and their tokens take; few, as each is checked often
_SCARCE = 11  # a block more than the longest of them
_HYBRID = tuple(name for name in STRATEGIES if name != "gpu-only")


def _on_device(stats: EngineStats) -> bool:
    return stats.device_attention_tokens > 0 and stats.host_attention_tokens == 0


def _on_host(stats: EngineStats) -> bool:
    return stats.host_attention_tokens > 0 and stats.device_attention_tokens == 0


def _in_both(stats: EngineStats) -> bool:
    return stats.host_attention_tokens > 0 and stats.device_attention_tokens > 0


def _joined(stats: EngineStats) -> bool:
    return stats.cohort_joins > 0 and stats.host_attention_tokens > 0


def _all_happened(stats: EngineStats) -> bool:
    """Attention in both tiers, cohorts that came late, and rows that gave up their memory."""
    met = _joined(stats) and _in_both(stats) and stats.cohort_waits > 0
    return met and stats.preemptions > 0


def _switching(names: tuple[str, ...], **options: object) -> Setup:
    """Another of several strategies in every step; memory for two thirds of all tokens."""
    base = {
        "device_blocks": _SCARCE,
        "preemption_mode": "swap",
        "max_cohorts": 3,
        "max_cohort_rows": 2,
        "interposition_budget": 2,
        "executor": "exact",
        "prices": round_prices(2, layer_s=1.0, device_key_s=0.1, host_key_s=0.1, block_s=0.5),
    }
    return Setup(strategy=Switching(names, 8), **(base | options))  # pyright: ignore[reportArgumentType]


def _lane(strategy: str, placement: str, **options: object) -> Setup:
    """Room for everything on the host; on the device too, unless all KV is kept off it."""
    device = 0 if placement == "host" else _AMPLE
    base = {"device_blocks": device, "host_blocks": _AMPLE, "kv_placement": placement}
    return Setup(strategy=strategy, **(base | options))  # pyright: ignore[reportArgumentType]


def _host_only(**options: object) -> Setup:
    base = {"device_blocks": _AMPLE, "executor": "host"}
    return Setup(**(base | options))  # pyright: ignore[reportArgumentType]


MODES: tuple[Mode, ...] = (
    Mode("single", Setup(device_blocks=_AMPLE, max_num_seqs=1), _on_device, together=False),
    Mode("batched", Setup(device_blocks=_AMPLE), lambda s: _on_device(s) and s.num_steps < 3 * 64),
    Mode("in-torch", Setup(device_blocks=_AMPLE), _on_device, compiled=False),
    Mode("none-single", _host_only(max_num_seqs=1), _on_device, together=False),
    Mode("none-batched", _host_only(), _on_device),
    Mode("none-chunked", _host_only(max_num_batched_tokens=20), _on_device),
    Mode("plain-loop", Setup(device_blocks=_AMPLE, overlap=False), _on_device),
    Mode(
        "chunked",
        Setup(device_blocks=_AMPLE, max_num_batched_tokens=8),
        lambda s: s.num_steps > 64 + 8,
    ),
    Mode("preempted", Setup(device_blocks=_SCARCE), lambda s: s.preemptions > 0),
    Mode(
        "swapped",
        Setup(device_blocks=_SCARCE, host_blocks=_AMPLE, preemption_mode="swap"),
        lambda s: s.preemptions > 0 and s.transfers > 1,
    ),
    Mode(
        "prefix-cached", Setup(device_blocks=_AMPLE), lambda s: s.cached_prompt_tokens > 0, runs=2
    ),
    Mode("host-lane", _lane("ride-along", "host"), _on_host),
    Mode("split", _lane("ride-along", "split"), _in_both),
    Mode(
        "spilled", Setup(strategy="ride-along", device_blocks=_SCARCE, host_blocks=_AMPLE), _in_both
    ),
    Mode("cohorts-host", _lane("rendezvous", "host"), _joined),
    Mode("cohorts-split", _lane("rendezvous", "split", max_cohorts=2, max_cohort_rows=1), _joined),
    Mode("ahead-split", _lane("rendezvous-ahead", "split", max_cohorts=2), _joined),
    Mode("asymmetric-host", _lane("asymmetric", "host", interposition_budget=64), _joined),
    Mode(
        "symmetric-host",
        _lane("symmetric", "host", interposition_budget=64, max_cohorts=2),
        _joined,
    ),
    Mode(
        "exact-device", Setup(device_blocks=_AMPLE, executor="exact", executor_seed=1), _on_device
    ),
    Mode("exact-split", _lane("ride-along", "split", executor="exact", executor_seed=2), _in_both),
    Mode(
        "exact-plain-loop",
        _lane("ride-along", "split", executor="exact", executor_seed=3, overlap=False),
        _in_both,
    ),
    Mode(
        "exact-cohorts",
        Setup(
            strategy="rendezvous",
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            executor="exact",
            executor_seed=33,  # the host's queue crawls, so that sweeps come before cohorts
        ),
        lambda s: _joined(s) and s.cohort_waits > 0,
    ),
    Mode(
        "exact-asymmetric",
        Setup(
            strategy="asymmetric",
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            max_cohorts=2,
            interposition_budget=2,
            executor="exact",
            executor_seed=30,
        ),
        lambda s: _joined(s) and s.cohort_waits > 0,
    ),
    Mode(
        "exact-auto",  # riding would cost, cohorts would wait: both are chosen as contexts grow
        Setup(
            strategy="auto",
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            max_cohorts=2,
            max_cohort_rows=2,
            interposition_budget=2,
            executor="exact",
            executor_seed=34,
            prices=round_prices(2, layer_s=1.0, host_key_s=0.3),
        ),
        lambda s: _joined(s) and _in_both(s),
    ),
    Mode(
        "exact-neo",
        Setup(
            strategy="neo",
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            max_cohorts=2,
            max_cohort_rows=2,
            interposition_budget=64,
            executor="exact",
            executor_seed=35,
            prices=round_prices(2, layer_s=1.0, device_key_s=1.0, host_key_s=0.02),
        ),
        lambda s: _joined(s) and _in_both(s),
    ),
    Mode(
        "exact-apex",
        Setup(
            strategy="apex",
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            max_cohorts=2,
            interposition_budget=64,
            executor="exact",
            executor_seed=36,
            prices=round_prices(2, layer_s=1.0, device_key_s=0.01, host_key_s=0.05),
        ),
        _joined,
    ),
    Mode(
        "exact-neo-published",
        Setup(
            strategy="neo-published",
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            max_cohorts=2,
            max_cohort_rows=2,
            interposition_budget=64,
            executor="exact",
            executor_seed=37,
            prices=round_prices(2, layer_s=1.0, device_key_s=1.0, host_key_s=0.02),
        ),
        _in_both,
    ),
    Mode(
        "exact-apex-published",
        Setup(
            strategy="apex-published",
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            max_cohorts=2,
            interposition_budget=64,
            executor="exact",
            executor_seed=38,
            prices=round_prices(2, layer_s=1.0, device_key_s=0.01, host_key_s=0.05),
        ),
        _in_both,
    ),
    Mode(
        "exact-symmetric",
        _lane(
            "symmetric",
            "host",
            interposition_budget=64,
            max_cohorts=2,
            executor="exact",
            executor_seed=39,
        ),
        _joined,
    ),
    Mode(
        "exact-ahead",
        _lane("rendezvous-ahead", "split", max_cohorts=2, executor="exact", executor_seed=40),
        _joined,
    ),
    Mode(
        "exact-swapped",
        Setup(
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            preemption_mode="swap",
            executor="exact",
            executor_seed=5,
        ),
        lambda s: s.preemptions > 0 and s.transfers > 1,
    ),
    Mode(
        "exact-swapped-by-time",
        Setup(
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            preemption_mode="auto",
            executor="exact",
            executor_seed=7,
            prices=round_prices(2, token_s=1.0, block_s=4.0),
        ),
        lambda s: s.preemptions > 0 and s.transfers > 1,
    ),
    Mode(
        "exact-mixed",  # copied to the host; comes back computed at its beginning, copied behind it
        Setup(
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            preemption_mode="mix",
            prefix_caching=False,
            executor="exact",
            executor_seed=41,
            prices=round_prices(2, layer_s=0.0, token_s=1.0, block_s=10.0),
        ),
        lambda s: s.preemptions > 0 and s.mixed_returns > 0,
    ),
    Mode(
        "exact-fetched",  # the second time, what was evicted meanwhile comes back from the host
        Setup(
            device_blocks=_SCARCE,
            host_blocks=_AMPLE,
            host_prefix_share=1.0,
            executor="exact",
            executor_seed=6,
        ),
        lambda s: s.prefix.fetched_tokens > 0,
        runs=2,
    ),
    Mode(
        "exact-switching",
        _switching(
            STRATEGIES,
            host_blocks=9,
            max_host_seqs=2,
            prompts_on_device=True,
            executor_seed=8,
        ),
        lambda s: _all_happened(s) and s.transfers > 0,
    ),
    Mode(
        "exact-switching-split",
        _switching(_HYBRID, host_blocks=8, kv_placement="split", executor_seed=9),
        _all_happened,
    ),
    Mode("threaded-split", _lane("ride-along", "split", executor="threaded"), _in_both),
    Mode("threaded-cohorts", _lane("rendezvous", "host", executor="threaded"), _joined),
    Mode(
        "threaded-asymmetric",
        _lane("asymmetric", "split", executor="threaded", interposition_budget=64, max_cohorts=2),
        _joined,
    ),
)
MODE_OF = {mode.id: mode for mode in MODES}
