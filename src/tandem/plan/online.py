"""The frozen decisions of an online engine (contract 13): what it executes, nothing more."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import WeightPlacement
from tandem.spec.errors import ConfigError

FORMAT = 4


@dataclass(frozen=True, slots=True)
class OnlinePlan:
    """Sizes and bounds of one engine, resolved once.

    Attributes:
        cpu_rules: layers of home `host` that the CPU computes, by the size of a step; ascending.
        device_blocks, host_blocks: KV blocks per tier.
        launch_ahead_steps: sweeps that may be in flight, the one being computed included.
        max_cohorts, max_cohort_rows: host-attention cohorts under way, and their size.
        max_join_wait_s: how long the accelerator may wait for a cohort that is due.
        notes: what was decided for the user and why, one line each.
    """

    strategy: str
    weights: tuple[WeightPlacement, ...]
    device_blocks: int
    host_blocks: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    launch_ahead_steps: int = 2
    max_cohorts: int = 1
    max_cohort_rows: int = 256
    max_join_wait_s: float = 0.002
    cpu_rules: tuple[CpuRule, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The plan as JSON, with its format's number."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @staticmethod
    def from_json(text: str) -> "OnlinePlan":
        """Inverse of `to_json`.

        Raises:
            ConfigError: not JSON, another format, or fields that do not fit.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            if values.pop("format", None) != FORMAT:
                raise ConfigError(f"this plan is not of format {FORMAT}; make it anew")
            weights = tuple(_placement_of(entry) for entry in values.pop("weights"))
            rules = tuple(
                CpuRule(rule["max_tokens"], tuple(rule["layers"]))
                for rule in values.pop("cpu_rules", ())
            )
            notes = tuple(values.pop("notes", ()))
            return OnlinePlan(weights=weights, cpu_rules=rules, notes=notes, **values)
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"not a valid plan ({error}); make it anew") from None


def _placement_of(entry: dict[str, Any]) -> WeightPlacement:
    values = dict(entry)
    return WeightPlacement(experts=tuple(values.pop("experts")), **values)
