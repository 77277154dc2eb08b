"""The frozen decisions of an online engine (contract 13): what it executes, nothing more."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from tandem.plan.plan_object import fields_of, made_of, parse_plan
from tandem.plan.strategy_names import COHORT_STRATEGIES, STRATEGIES, most_sampled_rows
from tandem.plan.sweep_layers import CpuRule, SweepChoice
from tandem.plan.weights import (
    EMBEDDING_HOMES,
    HOMES,
    LENT,
    EmbeddingHome,
    WeightPlacement,
    homes_by_layer,
)
from tandem.spec import forms
from tandem.spec.config import KVPlacement
from tandem.spec.errors import ConfigError

FORMAT = 7
_LEAST: dict[str, int] = {
    "device_blocks": 0, "host_blocks": 0, "block_size": 1, "max_model_len": 1, "max_num_seqs": 1,
    "max_num_batched_tokens": 1, "launch_ahead_steps": 1, "max_cohorts": 0, "max_cohort_rows": 0,
    "max_host_seqs": 0, "max_device_seqs": 0, "split_blocks": 0, "interposition_budget": 0,
}  # fmt: skip
_FORMS: dict[str, forms.Form] = {
    "strategy": forms.text,
    **dict.fromkeys(_LEAST, forms.whole_number),
    "max_join_wait_s": forms.number,
    "kv_placement": forms.text,
    "embedding": forms.text,
    "prompts_on_device": forms.flag,
    "notes": forms.texts,
}
_HOMES = (*HOMES, "disk_streamed")
_MAX_LAYERS = 10_000
USUAL_JOIN_WAIT_S = 0.002
"""Where nothing is known of a sweep's time."""


@dataclass(frozen=True, slots=True)
class OnlinePlan:
    """Sizes and bounds of one engine, resolved once.

    Attributes:
        weights: homes of all layers, from the first to the last.
        cpu_rules: layers of home `host` that the CPU computes, and of home `host-mlp` those whose
            MLPs it does, by the size of a step; ascending.
        embedding: where the token embeddings lie.
        device_blocks, host_blocks: KV blocks per tier.
        launch_ahead_steps: sweeps that may be in flight, the one being computed included.
        max_cohorts, max_cohort_rows: host-attention cohorts under way, and their size.
        max_join_wait_s: how long the accelerator may wait for a cohort in a sweep.
        interposition_budget: most passes of its own that a cohort has in a sweep.
        kv_placement: tier in which requests keep their KV.
        max_host_seqs: under `auto`, requests that may start on the host for want of room.
        max_device_seqs: beside those, requests on the accelerator; 0: as many as it has room for.
        prompts_on_device: requests that lie on the host read their prompts on the accelerator, from
            where their KV goes to the host.
        split_blocks: of a request that is too long for the accelerator, leading KV blocks that lie
            there; 0: half of those that it has, or all where one runs at a time.
        notes: what was decided for the user and why, one line each.

    Raises:
        ConfigError: a value of another type or out of range, or layers that are placed twice, not
            at all, or so that they do not go round.
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
    max_join_wait_s: float = USUAL_JOIN_WAIT_S
    cpu_rules: tuple[CpuRule, ...] = ()
    kv_placement: KVPlacement = "auto"
    max_host_seqs: int = 0
    max_device_seqs: int = 0
    prompts_on_device: bool = False
    split_blocks: int = 0
    interposition_budget: int = 0
    embedding: EmbeddingHome = "resident"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        forms.apply_forms(self, _FORMS, ConfigError)
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.max_join_wait_s < math.inf:
            raise ConfigError(f"max_join_wait_s {self.max_join_wait_s} is no duration")
        _check_known("kv_placement", self.kv_placement, get_args(KVPlacement))
        if self.strategy in COHORT_STRATEGIES and not (self.max_cohorts and self.max_cohort_rows):
            raise ConfigError(
                f"strategy {self.strategy} starts cohorts: max_cohorts and max_cohort_rows must be "
                "at least 1"
            )
        if self.embedding not in EMBEDDING_HOMES:
            raise ConfigError(
                f"embedding {forms.shown(self.embedding)} is none of {', '.join(EMBEDDING_HOMES)}"
            )
        _check_layers(self.weights, self.cpu_rules)

    @property
    def num_layers(self) -> int:
        """Of the model that it is for."""
        return len(homes_by_layer(self.weights))

    @property
    def max_sampled_rows(self) -> int:
        """That a sweep samples."""
        return most_sampled_rows(
            self.strategy, self.max_num_seqs, self.max_device_seqs, self.max_cohort_rows
        )

    def to_json(self) -> str:
        """The plan as JSON, with its format's number."""
        return json.dumps(self.to_object())

    def to_object(self) -> dict[str, Any]:
        """What `to_json` writes, before it is text."""
        return {"format": FORMAT, **asdict(self)}

    @staticmethod
    def from_json(text: str) -> "OnlinePlan":
        """Inverse of `to_json`.

        Raises:
            ConfigError: not JSON, another format, or fields that do not fit.
        """
        return parse_plan(text, OnlinePlan.from_object)

    @staticmethod
    def from_object(given: Any) -> "OnlinePlan":
        """Inverse of `to_object`.

        Raises:
            ConfigError: another format, or fields that do not fit.
        """
        values = fields_of(given, FORMAT)
        try:
            weights = tuple(_placement_of(entry) for entry in values.pop("weights"))
            rules = tuple(
                CpuRule(rule["max_tokens"], tuple(rule["layers"]))
                for rule in values.pop("cpu_rules", ())
            )
            # a program may bring a strategy of its own, a file none
            if "strategy" in values:
                _check_known("strategy", values["strategy"], STRATEGIES)
            return made_of(OnlinePlan, values, "plan", weights=weights, cpu_rules=rules)
        except KeyError as error:
            raise ConfigError(f"not a valid plan ({error.args[0]} is missing)") from None
        except (TypeError, AttributeError, ConfigError) as error:
            raise ConfigError(f"not a valid plan ({error})") from None


def _check_known(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{name} {forms.shown(value)} is none of {', '.join(known)}")


def _placement_of(entry: Mapping[str, Any]) -> WeightPlacement:
    values = {**entry}
    return WeightPlacement(experts=tuple(values.pop("experts", ())), **values)


def _check_layers(weights: tuple[WeightPlacement, ...], rules: tuple[CpuRule, ...]) -> None:
    """Layers 0 to the last one have a home each, and steps can be taken through them."""
    for run in weights:
        forms.in_form(run.first_layer, forms.whole_number, "first_layer", ConfigError)
        forms.in_form(run.last_layer, forms.whole_number, "last_layer", ConfigError)
        forms.in_form(run.experts, forms.whole_numbers, "experts", ConfigError)
        if run.home not in _HOMES:
            raise ConfigError(f"home {forms.shown(run.home)} is none of {', '.join(_HOMES)}")
        if run.last_layer >= _MAX_LAYERS:
            raise ConfigError(f"no model has a layer {run.last_layer}")
    ends = [-1, *(run.last_layer for run in weights)]
    if any(
        run.first_layer != end + 1 or run.last_layer < run.first_layer
        for run, end in zip(weights, ends, strict=False)
    ):
        raise ConfigError("layers are not placed one run after the other, each once")
    if not weights:
        raise ConfigError("no layer is placed")
    _check_rules(homes_by_layer(weights), rules)
    SweepChoice.of_plan(weights, rules)  # refuses what cannot be done


def _check_rules(homes: Mapping[int, str], rules: tuple[CpuRule, ...]) -> None:
    most = 0
    for rule in rules:
        forms.in_form(rule.max_tokens, forms.whole_number, "max_tokens", ConfigError)
        layers = forms.in_form(rule.layers, forms.whole_numbers, "layers", ConfigError)
        if rule.max_tokens <= most:
            raise ConfigError("cpu_rules are not in order of max_tokens")
        if any(homes.get(layer) not in LENT for layer in layers):
            raise ConfigError(f"cpu_rules name layers whose home is none of {', '.join(LENT)}")
        most = rule.max_tokens
