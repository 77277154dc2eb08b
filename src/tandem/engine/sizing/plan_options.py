"""A configuration from what a user gave, and from the plan that is among it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tandem.engine.sizing.planned import require_model
from tandem.plan.plan_file import PlanFile, read_plan
from tandem.spec.config import AUTO_PLAN, EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_NOTHING_TO_CHOOSE = ("placement", "host_layers", "expert_hits")
"""They say where layers go, all of which a plan has placed."""
_DECIDED = ("max_num_seqs", "cpu_kv_dtype")
"""What such a plan decides for itself; of all else that it decides, the user's word is asked."""


def engine_config(
    options: Mapping[str, Any], defaults: Mapping[str, Any] = NO_OPTIONS
) -> EngineConfig:
    """The configuration of a user's options by name; `model` must be among them.

    Where a `plan` is given, the fields that it decides are as it says. Beside it may be given what
    it leaves open, limits of memory that it must keep, and what agrees with it.

    Args:
        defaults: for what is neither among the options nor decided by a plan.

    Raises:
        ConfigError: no such option, a value out of range, a plan that cannot be read, or an option
            that contradicts it.
    """
    config = EngineConfig.from_options({**defaults, **options})
    if config.plan is None:
        return config
    if config.plan == AUTO_PLAN:
        raise ConfigError(
            "--plan auto plans for all requests of a job, which only tandem batch knows; name a "
            "file that tandem plan --output wrote (./auto, if it is called so)",
            param="plan",
        )
    planned = read_plan(Path(config.plan))
    if planned.is_for_blocks:
        from tandem.engine.sizing.block_options import refuse_beside_blocks  # no other start does

        refuse_beside_blocks(config, options.keys())
    for name in options:
        _refuse_contradiction(config, name, planned)
    try:
        return replace(config, **planned.settings)
    except ConfigError as error:
        raise ConfigError(f"cannot use plan {config.plan}: {error.message}", param="plan") from None


def job_config(
    options: Mapping[str, Any], defaults: Mapping[str, Any] = NO_OPTIONS
) -> EngineConfig:
    """As `engine_config`, of a job that may be planned for as it begins (`AUTO_PLAN`).

    Raises:
        ConfigError: as there; or an option that contradicts any such plan.
    """
    if options.get("plan", defaults.get("plan")) != AUTO_PLAN:
        return engine_config(options, defaults)
    from tandem.engine.sizing.block_options import refuse_beside_blocks  # no other start does

    config = EngineConfig.from_options({**defaults, **options})
    refuse_beside_blocks(config, options.keys())
    for name in (*_NOTHING_TO_CHOOSE, *_DECIDED):
        if name in options and getattr(config, name) not in (None, "auto"):
            raise ConfigError(
                f"--{name.replace('_', '-')} has no meaning beside --plan {AUTO_PLAN}, which "
                "decides that; leave one of them out",
                param=name,
            )
    if config.gpu_margin != "auto":
        raise ConfigError(
            f"--gpu-margin has no meaning beside --plan {AUTO_PLAN}, which leaves 5% of the "
            "accelerator's memory free, at most 1 GiB; say with --gpu-memory how much may be used",
            param="gpu_margin",
        )
    return config


def planned_file(config: EngineConfig, spec: ModelSpec) -> PlanFile | None:
    """The plan that a configuration names, if any.

    Raises:
        ConfigError: it cannot be read, is for another model, or contradicts the configuration.
    """
    if config.plan is None:
        return None
    planned = read_plan(Path(config.plan))
    require_settings(config, planned)
    require_model(planned, spec)
    return planned


def require_settings(config: EngineConfig, planned: PlanFile) -> None:
    """A configuration must say what the plan decides, as `engine_config` makes it.

    Raises:
        ConfigError: the file has changed since, or another configuration was put together by hand.
    """
    for name, value in planned.settings.items():
        if getattr(config, name) != value:
            raise _contradiction(config, name, value)


def _refuse_contradiction(config: EngineConfig, name: str, planned: PlanFile) -> None:
    if name in _NOTHING_TO_CHOOSE and getattr(config, name) not in (None, "auto"):
        raise ConfigError(
            f"--{name.replace('_', '-')} has no meaning beside --plan {config.plan}, which places "
            "every layer; leave one of them out",
            param=name,
        )
    settings = planned.settings
    if name in settings and getattr(config, name) not in (settings[name], None, "auto"):
        raise _contradiction(config, name, settings[name])


def _contradiction(config: EngineConfig, name: str, planned: object) -> ConfigError:
    flag, given = f"--{name.replace('_', '-')}", f" {getattr(config, name)}"
    if isinstance(planned, bool):
        flag, given = f"--no-{name.replace('_', '-')}" if planned else flag, ""
        planned = "otherwise"
    return ConfigError(
        f"{flag}{given} contradicts --plan {config.plan}, which says {planned}; leave it out, or "
        "plan anew",
        param=name,
    )
