"""A plan in a file: what `tandem plan --output` writes, and what an engine then executes."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tandem.plan.offline import OfflinePlan
from tandem.plan.online import OnlinePlan
from tandem.plan.plan_object import is_format, made_of
from tandem.plan.strategy_names import PASS_STRATEGIES
from tandem.plan.weights import homes_by_layer
from tandem.spec import forms
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import num_parameters
from tandem.spec.user_file import parse_object, read_text, replace_text

if TYPE_CHECKING:
    from tandem.spec.hardware import HardwareSpec

FORMAT = 1
_MAX_FILE_BYTES = 1 << 20
_HOMES_ALONE = ("resident", "disk")
_FORMS: dict[str, forms.Form] = {
    "model_name": forms.text, "hardware": forms.text, "host_only": forms.flag,
    "dtype": forms.text, "kv_cache_dtype": forms.text, "cpu_kv_dtype": forms.text,
    "quantization": forms.text, "precision": forms.text,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """What of a model decides how large everything is."""

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    num_parameters: int

    @staticmethod
    def of(spec: ModelSpec) -> "PlannedModel":
        """Of a model."""
        names = [field.name for field in fields(PlannedModel) if field.name != "num_parameters"]
        facts = {name: getattr(spec, name) for name in names}
        return PlannedModel(**facts, num_parameters=num_parameters(spec))

    def differences(self, other: "PlannedModel") -> str:
        """What is not alike, this one's first; empty: nothing."""
        here, there = asdict(self), asdict(other)
        return ", ".join(
            f"{name} {forms.shown(here[name])} instead of {forms.shown(there[name])}"
            for name in here
            if here[name] != there[name]
        )


@dataclass(frozen=True, slots=True)
class PlanFile:
    """An `OnlinePlan` or an `OfflinePlan` with what it was made for.

    Attributes:
        model_name: what the user called the model.
        hardware: a line for people.
        host_only: it is for a host without an accelerator.
        dtype, kv_cache_dtype, cpu_kv_dtype, quantization: as the engine's flags.
        precision: what these come to, as an engine says it.
        machine: of an offline plan, the rates that it was made for, by which it may be made anew
            when they turn out otherwise.

    Raises:
        ConfigError: a value of another type, or layers that are not the model's, or that lie where
            the hardware has no place for them.
    """

    model_name: str
    model: PlannedModel
    hardware: str
    host_only: bool
    dtype: str
    kv_cache_dtype: str
    cpu_kv_dtype: str
    quantization: str
    precision: str
    plan: OnlinePlan | OfflinePlan
    machine: "HardwareSpec | None" = None

    def __post_init__(self) -> None:
        forms.apply_forms(self, _FORMS, ConfigError)
        if self.host_only and self.is_for_blocks:
            raise ConfigError("a plan for blocks is for an accelerator beside its host")
        if isinstance(self.plan, OfflinePlan):
            if self.kv_cache_dtype != self.plan.kv_dtype:
                raise ConfigError(
                    f"KV on the accelerator is in {forms.shown(self.plan.kv_dtype)}, or in "
                    f"{forms.shown(self.kv_cache_dtype)}"
                )
            kept = self.kv_cache_dtype if self.cpu_kv_dtype == "auto" else self.cpu_kv_dtype
            if kept != self.plan.host_kv_dtype:
                raise ConfigError(f"KV on the host is in {self.plan.host_kv_dtype}, or in {kept}")
        if self.plan.num_layers != self.model.num_layers:
            raise ConfigError(
                f"{self.plan.num_layers} layers are placed, of a model with {self.model.num_layers}"
            )
        for home in homes_by_layer(self.plan.weights).values():
            if (self.host_only and home not in _HOMES_ALONE) or (
                not self.host_only and home == "disk"
            ):
                where = "without" if self.host_only else "beside"
                raise ConfigError(f"home '{home}' is none {where} an accelerator")
        if self.host_only and not self.is_for_blocks and self.online.embedding != "resident":
            raise ConfigError("there is no accelerator for embeddings to be apart from")

    @property
    def settings(self) -> dict[str, Any]:
        """Fields of an engine's configuration that the plan decides."""
        decided = self._of_blocks if self.is_for_blocks else self._of_sweeps
        return {
            **({"accelerator": "none"} if self.host_only else {}),
            "dtype": self.dtype,
            "quantization": self.quantization,
            "kv_cache_dtype": self.kv_cache_dtype,
            "cpu_kv_dtype": self.cpu_kv_dtype,
            "max_model_len": self.plan.max_model_len,
            "block_size": self.plan.block_size,
            **decided,
        }

    @property
    def is_for_blocks(self) -> bool:
        """Whether it is an offline plan."""
        return isinstance(self.plan, OfflinePlan)

    @property
    def online(self) -> OnlinePlan:
        """The plan, which must be one for requests as they come.

        Raises:
            ConfigError: it is for a batch job.
        """
        if isinstance(self.plan, OfflinePlan):
            raise ConfigError("this plan is for the blocks of a batch job", param="plan")
        return self.plan

    @property
    def blocks(self) -> OfflinePlan:
        """The plan, which must be one of a batch job.

        Raises:
            ConfigError: it is for requests as they come.
        """
        if not isinstance(self.plan, OfflinePlan):
            raise ConfigError("this plan is for requests as they come", param="plan")
        return self.plan

    @property
    def _of_sweeps(self) -> dict[str, Any]:
        plan = self.online
        return {
            "max_num_seqs": plan.max_num_seqs,
            "max_num_batched_tokens": plan.max_num_batched_tokens,
            "strategy": plan.strategy,
            "kv_placement": plan.kv_placement,
            "max_host_seqs": plan.max_host_seqs,
            "interposition_budget": (
                plan.interposition_budget if plan.strategy in PASS_STRATEGIES else None
            ),
            "overlap": plan.launch_ahead_steps > 1,
        }

    @property
    def _of_blocks(self) -> dict[str, Any]:
        return {
            "max_num_seqs": self.blocks.block_rows,
            "max_num_batched_tokens": self.blocks.prefill_tokens,
        }

    def to_json(self) -> str:
        """As text, with the format's number."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"model": asdict(self.model), "plan": self.plan.to_object()}
        if self.is_for_blocks:
            values["offline"] = True
        if (machine := values.pop("machine")) is not None:
            from tandem.spec.hardware_file import hardware_table

            values["machine"] = hardware_table(machine)
        return json.dumps({"format": FORMAT, **values}, indent=1)

    @staticmethod
    def from_json(text: str) -> "PlanFile":
        """Inverse of `to_json`.

        Raises:
            ConfigError: not JSON, another format, or fields that do not fit.
        """
        given = parse_object(text)
        if "format" not in given or "plan" not in given:
            raise ConfigError("it is no plan")
        if not is_format(form := given.pop("format"), FORMAT):
            raise ConfigError(f"it has format {forms.shown(form)}, and this version reads {FORMAT}")
        model = made_of(PlannedModel, given.pop("model", None), "model")
        kind = OfflinePlan if given.pop("offline", False) is True else OnlinePlan
        plan = kind.from_object(given.pop("plan"))
        machine = _machine(given.pop("machine", None))
        return made_of(PlanFile, given, "the file", model=model, plan=plan, machine=machine)


def _machine(table: object) -> "HardwareSpec | None":
    if table is None:
        return None
    from tandem.spec.hardware_file import parse_hardware  # no other start needs it

    if not isinstance(table, dict):
        raise ConfigError(f"machine must be an object, not {forms.shown(table)}")
    return parse_hardware(cast("dict[str, Any]", table), "of the plan")


def read_plan(path: Path) -> PlanFile:
    """The plan in a file.

    Raises:
        ConfigError: no such file, or no plan that this version reads.
    """
    try:
        return PlanFile.from_json(read_text(path, _MAX_FILE_BYTES, "plan"))
    except ConfigError as error:
        raise _refusal(path, error.message) from None


def write_plan(path: Path, planned: PlanFile, param: str = "output") -> None:
    """Inverse of `read_plan`; at once, or not at all.

    Args:
        param: of the option that names the file.

    Raises:
        ConfigError: the file cannot be written; one that was there is left as it was.
    """
    try:
        replace_text(path, planned.to_json() + "\n")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; name another "
            f"--{param.replace('_', '-')}",
            param=param,
        ) from None


def _refusal(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot use plan {path}: {reason}; make it anew with `tandem plan MODEL --output FILE`",
        param="plan",
    )
