"""The frozen decisions of an offline batch: a zig-zag block schedule, and where everything lies."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from tandem.plan.block_shape import BlockShape
from tandem.plan.plan_object import fields_of, made_of, parse_plan
from tandem.plan.sweep_layers import CpuRule, SweepChoice
from tandem.plan.weights import (
    Home,
    StreamedLayers,
    WeightPlacement,
    homes_by_layer,
    layers_at,
    streamed_layers,
)
from tandem.spec import forms
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.plan.share_terms import ShareTerms

FORMAT = 1
QuantizedLayers = Literal["none", "streamed", "all"]
QUANTIZED_LAYERS: tuple[QuantizedLayers, ...] = ("none", "streamed", "all")
_HOMES = ("resident", "streamed", "host", "disk_streamed", "host-mlp")
_MAX_LAYERS = 10_000
_LEAST: dict[str, int] = {
    "batches": 1, "resident_rows": 0, "streamed_rows": 0, "cpu_rows": 0, "recomputed_tokens": 0,
    "block_size": 1, "device_blocks": 0, "host_blocks": 0, "slot_blocks": 0,
    "max_model_len": 1, "prefill_tokens": 1, "cpu_columns": 0,
}  # fmt: skip
_FORMS: dict[str, forms.Form] = {
    **dict.fromkeys(_LEAST, forms.whole_number),
    "quantized_layers": forms.text, "quantization": forms.text, "kv_dtype": forms.text,
    "host_kv_dtype": forms.text, "prompts_on_host": forms.flag,
    "layers_overlap": forms.flag, "weights_in_parts": forms.flag, "notes": forms.texts,
    "cpu_attention_maps": forms.flag,
    "threads": forms.optional(forms.whole_number),
    "pinned_blocks": forms.optional(forms.whole_number),
    "most_pinned_bytes": forms.optional(forms.whole_number), "cpu_mlps": forms.whole_numbers,
    "cpu_layers": forms.whole_numbers,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TierBudget:
    """One memory, and what of it is for what.

    Attributes:
        weights_bytes: all that are kept there; of streamed ones, on the accelerator, their slots;
            of those on disk, on the host, theirs.
        kv_bytes: keys, values and activations that stay; slot_bytes: room for those that pass.
        workspace_bytes: activations of a step and of the block between layers.
        pinned_bytes: of all of it, what the link reads and writes; 0 on the accelerator.

    Raises:
        ConfigError: more than there is, or a size below 0.
    """

    capacity_bytes: int
    weights_bytes: int
    kv_bytes: int
    slot_bytes: int
    workspace_bytes: int
    pinned_bytes: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            size = forms.in_form(
                getattr(self, field.name), forms.whole_number, field.name, ConfigError
            )
            if size < 0:
                raise ConfigError(f"{field.name} must be at least 0, not {size}")
        if self.free_bytes < 0:
            raise ConfigError(f"{self.used_bytes} bytes are used, of {self.capacity_bytes}")
        if self.pinned_bytes > self.used_bytes:
            raise ConfigError(f"{self.pinned_bytes} bytes are pinned, of {self.used_bytes}")

    @property
    def used_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.kv_bytes + self.slot_bytes + self.workspace_bytes

    @property
    def free_bytes(self) -> int:
        """What is left."""
        return self.capacity_bytes - self.used_bytes


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """A block of equal batches goes through the layers, one layer after the other, for each token.

    Attributes:
        weights: homes of all layers, from the first to the last: `resident`; `streamed`, or `host`
            where the CPU may compute some; `disk_streamed`, which are read into two slots of host
            memory before they come; or `host-mlp`, of which the MLP is in host memory, and the
            rest resident.
        cpu_mlps: of the latter, ascending, those whose MLPs the CPU computes in passes; prompts,
            and the others in passes, too, have them streamed. cpu_layers: likewise of those with
            home `host`, whole layers.
        cpu_columns: of each MLP that comes in passes from host memory, whole layers' included, so
            many of its intermediate size are not brought, but computed by the CPU while the
            accelerator computes the others; prompts have all of it streamed, and layers on disk
            come whole.
        cpu_attention_maps: of layers whose MLPs are divided so, attention's maps (of queries, keys,
            values and output) are not brought either, but computed by the CPU.
        quantized_layers: those whose linear maps are kept in few bits; quantization: how, as the
            engine's flag.
        batches: per block. resident_rows, streamed_rows, cpu_rows: sequences of a batch by what
            becomes of their KV: on the accelerator; on the host, brought in every layer; on the
            host, attended there.
        recomputed_tokens: of each streamed sequence, a prefix whose activations are kept on the
            host instead of keys and values, which are made anew from them in every layer.
        kv_dtype, host_kv_dtype: of KV on the accelerator, and of that on the host.
        block_size: tokens of a KV block. device_blocks, host_blocks: in each memory, of all layers.
            slot_blocks: of one layer, in each of the two slots that KV passes through.
        pinned_blocks: of `host_blocks`, those that passes may bring to the accelerator; None: all,
            where KV is streamed. most_pinned_bytes: of the host's memory, what may be pinned as
            the user bounded it; None: any of it.
        max_model_len: of the longest sequence.
        prefill_tokens: most prompt tokens that are computed at once.
        prompts_on_host: between layers, activations of prompts lie on the host.
        layers_overlap, weights_in_parts: as of `BlockShape`.
        terms: of its passes, by which streamed sequences and those that the CPU attends to are
            shared out anew as it runs, for both of which there is room; None: shares are fixed.
        fixed_terms: where they are, terms by which passes that take another time than was planned
            are told; None: that is not known of the plan.
        threads: of the CPU, which attend; None: as many as the engine may use.
        notes: what was decided for the user and why, one line each.

    Raises:
        ConfigError: a value of another type or out of range, sequences or layers that do not add
            up, or a memory that does not hold them.
    """

    weights: tuple[WeightPlacement, ...]
    batches: int
    resident_rows: int
    streamed_rows: int
    cpu_rows: int
    kv_dtype: str
    host_kv_dtype: str
    block_size: int
    device_blocks: int
    host_blocks: int
    slot_blocks: int
    max_model_len: int
    prefill_tokens: int
    accelerator: TierBudget
    host: TierBudget
    recomputed_tokens: int = 0
    quantized_layers: QuantizedLayers = "none"
    quantization: str = "none"
    prompts_on_host: bool = False
    layers_overlap: bool = False
    weights_in_parts: bool = False
    terms: "ShareTerms | None" = None
    fixed_terms: "ShareTerms | None" = None
    cpu_mlps: tuple[int, ...] = ()
    cpu_layers: tuple[int, ...] = ()
    cpu_columns: int = 0
    cpu_attention_maps: bool = False
    threads: int | None = None
    pinned_blocks: int | None = None
    most_pinned_bytes: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        forms.apply_forms(self, _FORMS, ConfigError)
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads must be at least 1, not {self.threads}")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")
        _check_layers(self.weights)
        self._check_cpu()
        self._check_columns()
        self._check_rows()
        self._check_bits()

    def _check_cpu(self) -> None:
        """What the CPU computes, and layers of which only the MLP is elsewhere."""
        apart = streamed_layers(self.weights).mlps
        if not (apart or self.cpu_mlps or self.cpu_layers):
            return
        if any(run.experts for run in self.weights):
            raise ConfigError("blocks of batches place no single experts")
        self._check_home("cpu_mlps", self.cpu_mlps, "host-mlp")
        self._check_home("cpu_layers", self.cpu_layers, "host")
        what = "layers with home 'host-mlp'" if apart else "cpu_layers"
        if self.weights_in_parts and apart:
            raise ConfigError(f"weights_in_parts and {what} do not go together")
        if self.quantized_layers == "streamed":
            raise ConfigError(f"few bits in streamed layers and {what} do not go together")
        if self.recomputed_tokens and self.cpu_layers:
            raise ConfigError(
                "recomputed_tokens and cpu_layers do not go together: the accelerator makes no "
                "keys of layers that the CPU computes"
            )
        _ = self.layers  # streamed ones that do not go round

    def _check_columns(self) -> None:
        """What columns of MLPs on the CPU go together with."""
        streamed = streamed_layers(self.weights)
        if self.cpu_attention_maps:
            self._check_attention_maps(streamed)
        if not self.cpu_columns:
            return
        others = {
            "cpu_mlps": self.cpu_mlps,
            "cpu_layers": self.cpu_layers,
            "weights_in_parts": self.weights_in_parts,
            "layers_overlap": self.layers_overlap,
            "few bits": self.quantized_layers != "none",
            "single experts": any(run.experts for run in self.weights),
        }
        found = [name for name, there in others.items() if there]
        if found:
            raise ConfigError(f"cpu_columns and {found[0]} do not go together")
        if not self.layers.usual.reloads:
            raise ConfigError(
                f"cpu_columns are those of MLPs that come in every pass, and with "
                f"{len(streamed.layers)} streamed layers none does"
            )
        if len(streamed.on_disk) == len(streamed.layers):
            raise ConfigError(
                "cpu_columns are those of MLPs in host memory, and all layers that come are on disk"
            )

    def _check_attention_maps(self, streamed: StreamedLayers) -> None:
        """What attention's maps on the CPU, beside columns of MLPs, go together with."""
        if not self.cpu_columns:
            raise ConfigError(
                "cpu_attention_maps are those of layers of which the CPU computes cpu_columns, "
                "and these are 0"
            )
        if streamed.mlps:
            raise ConfigError(
                "cpu_attention_maps and layers with home 'host-mlp' do not go together: their "
                "attention's maps stay on the accelerator"
            )
        if self.recomputed_tokens:
            raise ConfigError(
                "recomputed_tokens and cpu_attention_maps do not go together: the accelerator "
                "makes no keys of layers whose maps do not come"
            )

    def _check_home(self, name: str, layers: tuple[int, ...], home: Home) -> None:
        others = {*layers} - {*layers_at(self.weights, home)}
        if others or list(layers) != sorted({*layers}):
            raise ConfigError(
                f"{name} {list(layers)} are not, ascending, layers with home '{home}'"
            )

    def _check_rows(self) -> None:
        if not self.batch_rows:
            raise ConfigError("a batch without sequences")
        if self.recomputed_tokens % self.block_size:
            raise ConfigError(
                f"recomputed_tokens {self.recomputed_tokens} are no whole blocks of "
                f"{self.block_size}"
            )
        if self.recomputed_tokens > self.max_model_len:
            raise ConfigError(f"recomputed_tokens {self.recomputed_tokens} exceed a sequence")
        if self.recomputed_tokens and not self.streamed_rows:
            raise ConfigError("KV is recomputed, but none is streamed")
        if self.terms is not None and (self.recomputed_tokens or not self.host_rows):
            raise ConfigError(
                "shares are solved anew only of sequences with all their KV on the host"
            )
        if self.terms is not None and self.fixed_terms is not None:
            raise ConfigError("shares are fixed by fixed_terms, and solved anew by terms")
        for rows, name in ((self.resident_rows, "device"), (self.host_rows, "host")):
            if rows and not getattr(self, f"{name}_blocks"):
                raise ConfigError(f"{rows} sequences have their KV in {name}_blocks, which are 0")
        if self.host_rows and not self.host.kv_bytes:
            raise ConfigError("sequences have their KV on the host, which has no room for it")
        if self.resident_rows and not self.accelerator.kv_bytes:
            raise ConfigError(
                "sequences have their KV on the accelerator, which has no room for it"
            )
        if self.streamed_rows and not self.accelerator.slot_bytes:
            raise ConfigError("KV is streamed, but the accelerator has no slots for it")
        self._check_pinned()
        passes = max(self.prefill_tokens, self.max_model_len - 1)
        if self.host_rows and self.slot_blocks * self.block_size < passes:
            raise ConfigError(
                f"a slot of {self.slot_blocks} blocks does not hold {passes} tokens on their way "
                "to the host"
            )

    def _check_pinned(self) -> None:
        most = self.most_pinned_bytes
        if most is not None and self.host.pinned_bytes > most:
            raise ConfigError(f"{self.host.pinned_bytes} bytes are pinned, of {most} that may be")
        if self.pinned_blocks is not None and not 0 <= self.pinned_blocks <= self.host_blocks:
            raise ConfigError(
                f"pinned_blocks {self.pinned_blocks} are not among host_blocks {self.host_blocks}"
            )
        # of a prefix that is made anew, a sequence may have no block for some passes
        streamed = self.streamed_rows * self.batches
        least = min(streamed, 1) if self.recomputed_tokens else streamed
        if self.pinned_host_blocks < least:
            raise ConfigError(
                f"{streamed} sequences are streamed from {self.pinned_host_blocks} pinned blocks, "
                "fewer than one each"
            )

    def _check_bits(self) -> None:
        if self.quantized_layers not in QUANTIZED_LAYERS:
            known = ", ".join(QUANTIZED_LAYERS)
            raise ConfigError(
                f"quantized_layers {forms.shown(self.quantized_layers)} is none of {known}"
            )
        if (self.quantized_layers == "none") != (self.quantization == "none"):
            raise ConfigError(
                f"quantized_layers '{self.quantized_layers}' contradict quantization "
                f"'{self.quantization}'"
            )

    @property
    def pinned_host_blocks(self) -> int:
        """Of the host's pool, those whose KV may come to the accelerator in passes, at first or
        after shares were solved anew; prompts' KV, which crosses the link once, is not worth it.
        """
        if not self.streamed_rows and self.terms is None:
            return 0
        return self.host_blocks if self.pinned_blocks is None else self.pinned_blocks

    @property
    def host_rows(self) -> int:
        """Of a batch, those with KV on the host."""
        return self.streamed_rows + self.cpu_rows

    @property
    def batch_rows(self) -> int:
        """Sequences of a batch."""
        return self.resident_rows + self.host_rows

    @property
    def block_rows(self) -> int:
        """Sequences of a block."""
        return self.batch_rows * self.batches

    @property
    def num_layers(self) -> int:
        """Of the model that it is for."""
        return len(homes_by_layer(self.weights))

    @property
    def layers(self) -> SweepChoice:
        """What programs do with layers that are not resident: in passes, and over prompts.

        Raises:
            ConfigError: streamed ones do not go round.
        """
        computed = tuple(sorted((*self.cpu_mlps, *self.cpu_layers)))
        rules = (CpuRule(self.batch_rows, computed),) if computed else ()
        return replace(
            SweepChoice.of_plan(self.weights, rules),
            cpu_columns=self.cpu_columns,
            cpu_attention_maps=self.cpu_attention_maps,
        )

    @property
    def shape(self) -> BlockShape:
        """What its programs depend on."""
        return BlockShape(
            num_layers=self.num_layers,
            batches=self.batches,
            weights=streamed_layers(self.weights),
            resident=self.resident_rows > 0,
            streamed=self.streamed_rows > 0,
            cpu=self.cpu_rows > 0,
            recomputes=self.recomputed_tokens > 0,
            prompts_on_host=self.prompts_on_host,
            layers_overlap=self.layers_overlap,
            weights_in_parts=self.weights_in_parts,
            mlps_on_cpu=self.cpu_mlps,
            layers_on_cpu=self.cpu_layers,
            columns_on_cpu=self.cpu_columns > 0,
            attention_maps_on_cpu=self.cpu_attention_maps,
        )

    def to_json(self) -> str:
        """The plan as JSON, with its format's number."""
        return json.dumps(self.to_object())

    def to_object(self) -> dict[str, Any]:
        """What `to_json` writes, before it is text."""
        return {"format": FORMAT, **asdict(self)}

    @staticmethod
    def from_json(text: str) -> "OfflinePlan":
        """Inverse of `to_json`.

        Raises:
            ConfigError: not JSON, another format, or fields that do not fit.
        """
        return parse_plan(text, OfflinePlan.from_object)

    @staticmethod
    def from_object(given: Any) -> "OfflinePlan":
        """Inverse of `to_object`.

        Raises:
            ConfigError: another format, or fields that do not fit.
        """
        values = fields_of(given, FORMAT)
        try:
            weights = tuple(_placement_of(entry) for entry in values.pop("weights"))
            tiers = {
                name: made_of(TierBudget, values.pop(name, None), name)
                for name in ("accelerator", "host")
            }
            terms = {name: _terms_of(values.pop(name, None)) for name in ("terms", "fixed_terms")}
            return made_of(OfflinePlan, values, "plan", weights=weights, **terms, **tiers)
        except KeyError as error:
            raise ConfigError(f"not a valid plan ({error.args[0]} is missing)") from None
        except (TypeError, AttributeError, ConfigError) as error:
            raise ConfigError(f"not a valid plan ({error})") from None


def _placement_of(entry: Mapping[str, Any]) -> WeightPlacement:
    values = {**entry}
    return WeightPlacement(experts=tuple(values.pop("experts", ())), **values)


def _terms_of(given: Any) -> "ShareTerms | None":
    if given is None:
        return None
    from tandem.plan.share_terms import ShareTerms  # at no start but that of a plan with some

    return ShareTerms.from_object(given)


def _check_layers(weights: tuple[WeightPlacement, ...]) -> None:
    """Layers 0 to the last one have a home each."""
    end = -1
    for run in weights:
        first = forms.in_form(run.first_layer, forms.whole_number, "first_layer", ConfigError)
        last = forms.in_form(run.last_layer, forms.whole_number, "last_layer", ConfigError)
        if run.home not in _HOMES:
            raise ConfigError(f"home {forms.shown(run.home)} is none of {', '.join(_HOMES)}")
        if last >= _MAX_LAYERS:
            raise ConfigError(f"no model has a layer {last}")
        if first != end + 1 or last < first:
            raise ConfigError("layers are not placed one run after the other, each once")
        end = last
    if not weights:
        raise ConfigError("no layer is placed")
