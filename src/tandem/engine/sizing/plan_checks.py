"""What no plan could satisfy, told before anything is sized. Pure."""

from collections.abc import Iterator

from tandem.engine.sizing.capacities import Capacities
from tandem.plan.strategy_names import (
    COHORT_STRATEGIES,
    PASS_STRATEGIES,
    PRICED_STRATEGIES,
    RESIDENT_STRATEGIES,
    STRATEGIES,
)
from tandem.plan.weights import ON_CPU, WeightPlacement, homes_by_layer
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError


def may_choose_steps(config: EngineConfig, capacities: Capacities) -> bool:
    """Whether every step may be chosen by predicted time: where requests are to lie on the host."""
    hosted = config.max_host_seqs > 0 or config.kv_placement in ("host", "split")
    return config.strategy == "auto" and hosted and capacities.host_bytes > 0


def needs_prices(config: EngineConfig, capacities: Capacities) -> bool:
    """Whether steps are chosen by predicted time, or may be, or ways for KV to come back, or the
    order of prompts.
    """
    named = config.strategy != "auto" and config.strategy in PRICED_STRATEGIES
    weighs = bool(config.host_prefix_share) or config.preemption_mode in ("auto", "mix")
    weighs = weighs or config.ttft_bound is not None or config.kv_disk is not None
    return named or may_choose_steps(config, capacities) or weighs


def check_config(config: EngineConfig, capacities: Capacities) -> None:
    """Flags that contradict each other, or the machine.

    Raises:
        ConfigError: some do.
    """
    _check_strategy(config.strategy)
    if config.max_num_batched_tokens < config.max_num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens ({config.max_num_batched_tokens}) must be at least "
            f"max_num_seqs ({config.max_num_seqs}), so that every running "
            "sequence can get a token in a step",
            param="max_num_batched_tokens",
        )
    _check_expert_hits(config, capacities)
    _check_host_kv_type(config)
    if config.pinned_memory is not None:
        raise ConfigError(
            f"--pinned-memory {config.pinned_memory} bounds what the plan of a batch job pins; use "
            "it with a --plan that tandem plan --offline wrote, or leave it out",
            param="pinned_memory",
        )
    asked = list(_wants_of_host_kv(config, capacities))
    if asked and capacities.host_bytes == 0:
        raise ConfigError(
            f"{' and '.join(asked)} needs a host KV tier beside an accelerator; use --accelerator "
            "cuda or emulated, and --cpu-memory above 0",
            param="kv_placement",
        )
    if config.max_host_seqs and (config.strategy == "gpu-only" or config.kv_placement != "auto"):
        wrong = {
            f"--strategy {config.strategy}": config.strategy == "gpu-only",
            f"--kv-placement {config.kv_placement}": config.kv_placement != "auto",
        }
        remedies = ("--strategy auto", "--kv-placement auto")
        told = [flag for flag, is_wrong in wrong.items() if is_wrong]
        asked = [one for one, is_wrong in zip(remedies, wrong.values(), strict=True) if is_wrong]
        raise ConfigError(
            f"--max-host-seqs {config.max_host_seqs} has no meaning with {' '.join(told)}; use "
            f"{' and '.join(asked)}, or leave it out",
            param="max_host_seqs",
        )
    _check_host_prefixes(config)
    _check_link_copies(config, capacities)
    _check_attention_backend(config)
    _check_kv_disk(config, capacities)
    if config.interposition_budget is not None and config.strategy not in PASS_STRATEGIES:
        raise ConfigError(
            f"--interposition-budget has no meaning with --strategy {config.strategy}; use "
            f"one of {', '.join(PASS_STRATEGIES)}, or leave it out",
            param="interposition_budget",
        )
    bounded = config.tpot_bound is not None and config.ttft_bound is None
    if bounded and not may_choose_steps(config, capacities):
        raise ConfigError(
            f"--tpot-bound {config.tpot_bound} has no meaning where no steps are chosen for "
            "requests on the host; use --strategy auto with --max-host-seqs or --kv-placement "
            "host, beside an accelerator, or --ttft-bound, too, which may have prompts cut for it",
            param="tpot_bound",
        )
    if config.strategy == "gpu-only" and config.kv_placement in ("host", "split"):
        raise ConfigError(
            f"--strategy gpu-only cannot attend KV on the host, but --kv-placement is "
            f"{config.kv_placement}; use --strategy ride-along",
            param="kv_placement",
        )


def _check_strategy(name: str) -> None:
    if name in STRATEGIES:
        return
    from tandem.planner.policies import POLICIES

    known = ", ".join(STRATEGIES)
    if name in POLICIES:
        raise ConfigError(
            f"'{name}' is no strategy of an engine, but a policy, which plans keep to: run tandem "
            f"plan with --policy {name} --output FILE, and this with --plan FILE; strategies are: "
            f"{known}",
            param="strategy",
        )
    raise ConfigError(f"unknown strategy '{name}'; use one of: {known}", param="strategy")


def _check_expert_hits(config: EngineConfig, capacities: Capacities) -> None:
    """Of counts by which experts are placed, where they place none."""
    if config.expert_hits is None:
        return
    if config.placement is not None:
        raise ConfigError(
            "--expert-hits has no meaning with --placement, which names experts itself; leave "
            "one out",
            param="expert_hits",
        )
    if capacities.device_location == "host":
        raise ConfigError(
            "--expert-hits places experts on an accelerator, and there is none; leave it out, or "
            "use --accelerator cuda or emulated",
            param="expert_hits",
        )
    if config.host_layers in ("stream", "cpu"):
        raise ConfigError(
            f"--expert-hits has no meaning with --host-layers {config.host_layers}, which moves "
            "whole layers; use --host-layers auto or mlp",
            param="expert_hits",
        )


def _check_host_prefixes(config: EngineConfig) -> None:
    """Of copies on the host that could not be used."""
    reasons = {
        "--no-enable-prefix-caching": not config.enable_prefix_caching,
        f"--cpu-kv-dtype {config.cpu_kv_dtype}": config.cpu_kv_dtype != "auto",
    }
    contradicts = " ".join(flag for flag, is_set in reasons.items() if is_set)
    if config.host_prefix_share and contradicts:
        raise ConfigError(
            f"--host-prefix-share {config.host_prefix_share:g} has no meaning with {contradicts}: "
            "only what was computed exactly as it lies is used again; leave one out",
            param="host_prefix_share",
        )


def _check_link_copies(config: EngineConfig, capacities: Capacities) -> None:
    """Of copies of KV blocks that are none."""
    reasons = {
        "--cpu-memory 0": capacities.host_bytes == 0,
        f"--cpu-kv-dtype {config.cpu_kv_dtype}": config.cpu_kv_dtype != "auto",
    }
    contradicts = " ".join(flag for flag, is_set in reasons.items() if is_set)
    if config.link_copies != "auto" and contradicts:
        raise ConfigError(
            f"--link-copies {config.link_copies} has no meaning with {contradicts}, where no block "
            "crosses the link as it lies; leave one out",
            param="link_copies",
        )


def _check_attention_backend(config: EngineConfig) -> None:
    """Of a library for prompts whose keys are not all on the accelerator."""
    name, placement = config.attention_backend, config.kv_placement
    if name in ("flashinfer", "torch") and placement in ("host", "split"):
        raise ConfigError(
            f"--attention-backend {name} has no meaning with --kv-placement {placement}, where no "
            "prompt has all of its keys on the accelerator; leave one out",
            param="attention_backend",
        )


def _check_kv_disk(config: EngineConfig, capacities: Capacities) -> None:
    """Of a disk for prefixes that could get none."""
    if config.kv_disk is None:
        if config.kv_disk_size is not None:
            raise ConfigError(
                f"--kv-disk-size {config.kv_disk_size} has no meaning without --kv-disk; name a "
                "folder by it",
                param="kv_disk_size",
            )
        return
    beside = capacities.device_location != "host"
    reasons = {
        "--no-enable-prefix-caching": not config.enable_prefix_caching,
        f"--cpu-kv-dtype {config.cpu_kv_dtype}": config.cpu_kv_dtype != "auto",
        "--host-prefix-share 0": beside and config.host_prefix_share == 0,
    }
    contradicts = " ".join(flag for flag, is_set in reasons.items() if is_set)
    if contradicts:
        raise ConfigError(
            f"--kv-disk {config.kv_disk} has no meaning with {contradicts}: the disk keeps what "
            "the prefix cache has in host memory; leave one out",
            param="kv_disk",
        )


def _check_host_kv_type(config: EngineConfig) -> None:
    """Of KV on the host, where none can lie: swapped KV does."""
    for_device = [
        flag
        for flag, is_set in (
            ("--strategy gpu-only", config.strategy == "gpu-only"),
            ("--kv-placement device", config.kv_placement == "device"),
        )
        if is_set
    ]
    if config.cpu_kv_dtype != "auto" and for_device and not _copies_kv(config):
        raise ConfigError(
            f"--cpu-kv-dtype {config.cpu_kv_dtype} has no meaning with {' '.join(for_device)}, "
            "since no KV lies on the host; leave it out",
            param="cpu_kv_dtype",
        )


def _copies_kv(config: EngineConfig) -> bool:
    """Whether KV of preempted requests may go to the host."""
    return config.preemption_mode not in (None, "recompute")


def _wants_of_host_kv(config: EngineConfig, capacities: Capacities) -> Iterator[str]:
    if config.kv_placement in ("host", "split"):
        yield f"--kv-placement {config.kv_placement}"
    if config.strategy in COHORT_STRATEGIES:
        yield f"--strategy {config.strategy}"
    if config.host_prefix_share:
        yield f"--host-prefix-share {config.host_prefix_share:g}"
    if config.kv_disk is not None and capacities.device_location != "host":
        yield f"--kv-disk {config.kv_disk}"
    if config.max_host_seqs:
        yield f"--max-host-seqs {config.max_host_seqs}"


def check_placement(config: EngineConfig, placement: tuple[WeightPlacement, ...]) -> None:
    """A strategy that a placement leaves nothing to do.

    Raises:
        ConfigError: there is one.
    """
    homes = homes_by_layer(placement).values()
    if config.strategy in RESIDENT_STRATEGIES and any(home != "resident" for home in homes):
        raise ConfigError(
            f"--strategy {config.strategy} needs all layers on the accelerator, which is at two of "
            "them in turns, but some are placed elsewhere; use --strategy rendezvous",
            param="strategy",
        )
    if config.strategy in COHORT_STRATEGIES and all(home in ON_CPU for home in homes):
        raise ConfigError(
            f"--strategy {config.strategy} needs a layer on the accelerator, at which cohorts "
            "leave a sweep and join another, but all are placed on the CPU; use --strategy "
            "ride-along",
            param="strategy",
        )
