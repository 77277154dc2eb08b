"""Options of an engine that mean nothing to the blocks of a batch job."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError


@dataclass(frozen=True, slots=True)
class _Meaningless:
    """Attributes:
    why: "blocks of batches ...".
    agreeing: values that say what blocks do anyway.
    """

    why: str
    agreeing: tuple[object, ...] = (None, "auto")


_NO_PREFIX = "use no prefix again"
_NO_CHOICE = "have their KV where the plan says"
_PROGRAM = "follow the plan's program"
_NO_BOUND = "are for the most tokens per second, and nobody waits for a single one"

MEANINGLESS: Mapping[str, _Meaningless] = MappingProxyType(
    {
        "save_expert_hits": _Meaningless("count no experts for other engines"),
        "strategy": _Meaningless(_PROGRAM),
        "kv_placement": _Meaningless(_NO_CHOICE),
        "max_host_seqs": _Meaningless(_NO_CHOICE, (0,)),
        "interposition_budget": _Meaningless(_PROGRAM),
        "tpot_bound": _Meaningless(_NO_BOUND),
        "ttft_bound": _Meaningless(_NO_BOUND),
        "preemption_mode": _Meaningless("have room for all that they begin", (None, "auto")),
        "enable_prefix_caching": _Meaningless(_NO_PREFIX, (False,)),
        "host_prefix_share": _Meaningless(_NO_PREFIX, (None, 0.0)),
        "kv_disk": _Meaningless(_NO_PREFIX),
        "kv_disk_size": _Meaningless(_NO_PREFIX),
        "calibrate": _Meaningless("correct the plan's terms by themselves", (False,)),
        "overlap": _Meaningless(_PROGRAM, (True,)),
        "cuda_graphs": _Meaningless("wait for the link in every layer", ("auto", "off")),
        "link_copies": _Meaningless("are copied as they lie"),
        "link_waits": _Meaningless("are awaited by threads", ("host",)),
        "attention_backend": _Meaningless("are attended to by Triton's kernels where there are"),
    }
)
"""By name; all others mean to blocks what they do to other engines, or are decided by the plan."""

_DEFAULTS = MappingProxyType({field.name: field.default for field in fields(EngineConfig)})


def refuse_beside_blocks(config: EngineConfig, given: Collection[str] = ()) -> None:
    """What would do nothing is not taken silently.

    Args:
        given: options that the user has set, whose default is not taken for unsaid.

    Raises:
        ConfigError: names the first option that blocks of batches cannot follow.
    """
    for name, option in MEANINGLESS.items():
        value = getattr(config, name)
        said = name in given or value != _DEFAULTS[name]
        if said and value not in option.agreeing:
            raise ConfigError(
                f"{_as_flag(name, value)} has no meaning with --plan {config.plan}, whose blocks "
                f"of batches {option.why}; leave it out",
                param=name,
            )


def _as_flag(name: str, value: object) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value}"
