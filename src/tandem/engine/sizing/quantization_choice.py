"""What `--quantization` means for a model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tandem.models.quantized_checkpoint import read_stored_quantization, stored_formats
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_matrix_bytes
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import map_rows, uniform_formats
from tandem.spec.units import is_count
from tandem.spec.weight_format import WeightFormat

_KINDS = {"int8": 8, "int4": 4, "w8a8": 8}
_PARAM = "quantization"


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """How a checkpoint's layers are stored.

    Attributes:
        label: of its quantization; empty: there is none.
        formats: of the linear maps that are kept as they are in it.
        is_fp8: all are 8-bit floating point.
        widened_since: why those become wider, if they do.
    """

    label: str = ""
    formats: Mapping[str, WeightFormat] | None = None
    is_fp8: bool = False
    widened_since: str = ""


def stored_weights(
    directory: Path, config: EngineConfig, spec: ModelSpec, against_fp8: str | None
) -> StoredWeights:
    """Of the model in `directory`; dummy weights are not quantized, whatever config.json says.

    Args:
        against_fp8: why 8-bit floating point is not kept; None: it is, where it may be.

    Raises:
        ModelError: quantized in a way that is not supported.
    """
    dummy = config.load_format == "dummy"
    quantization = None if dummy else read_stored_quantization(directory)
    if quantization is None:
        return StoredWeights()
    if config.quantization == "none":
        return StoredWeights(quantization.label, is_fp8=quantization.is_fp8)
    floats = against_fp8 is None and config.quantization == "auto"
    return StoredWeights(
        quantization.label,
        stored_formats(directory, spec, floats=floats),
        quantization.is_fp8,
        against_fp8 or "its maps differ among layers, or divide into no groups of 32",
    )


def choose_quantization(
    wanted: str, spec: ModelSpec, precision: Precision, stored: StoredWeights, *, compiled: bool
) -> tuple[Precision, tuple[str, ...]]:
    """`precision` with the layers' linear maps kept as the user wants, and what to say about it.

    Args:
        wanted: `auto` is as the checkpoint has them, `none` in floating point; `int8`, `int4` and
            `w8a8`, with a group's size or without.
        compiled: the compiled kernels do the maths.

    Raises:
        ConfigError: no such quantization, groups that do not divide the model's rows, a checkpoint
            that is quantized otherwise, or int8 activations without the compiled kernels.
    """
    kind, _, group = wanted.partition(":")
    if wanted == "none":
        note = f"weights dequantized from {stored.label}{_growth(precision, stored)}"
        return precision, (note,) if stored.label else ()
    if wanted == "auto":
        return _as_stored(precision, stored)
    if kind not in _KINDS or (":" in wanted and not is_count(group)):
        raise ConfigError(
            f"unknown quantization '{wanted}'; use auto, none, int8, int4 or w8a8, or one of these "
            "with a group's size, such as int4:64",
            param=_PARAM,
        )
    rounds = kind == "w8a8"
    if rounds and not compiled:
        raise ConfigError(
            "w8a8 needs the compiled kernels, which compute on the host; use --accelerator none "
            "(or emulated), or int8",
            param=_PARAM,
        )
    formats = _formats(kind, group, spec, stored)
    chosen = replace(precision, quantized=formats, int8_activations=rounds)
    return chosen, (_note(spec, chosen, stored),)


def _as_stored(precision: Precision, stored: StoredWeights) -> tuple[Precision, tuple[str, ...]]:
    if not stored.label:
        return precision, ()
    chosen = replace(precision, quantized=stored.formats or {})
    held = "as they are"
    if chosen.holds_floats:
        held += "; layers for which there is no room are streamed, since the CPU reads no FP8"
    if not stored.formats:
        held = f"dequantized to {precision.weights}{_growth(precision, stored)}"
    return chosen, (f"weights quantized by {stored.label}: kept {held}",)


def _growth(precision: Precision, stored: StoredWeights) -> str:
    """What 8-bit floating point becomes, and what to do about it."""
    if not stored.is_fp8:
        return ""
    since = f", since {stored.widened_since}" if stored.widened_since else ""
    return (
        f", {precision.weights.size_bytes} times their bytes in the checkpoint{since}; "
        "--quantization int8 rounds them to about a byte each"
    )


def _formats(
    kind: str, group: str, spec: ModelSpec, stored: StoredWeights
) -> dict[str, WeightFormat]:
    if not stored.formats:
        return uniform_formats(spec, _KINDS[kind], int(group) if group else None)
    held = {format.bits for format in stored.formats.values()}
    if kind != "w8a8" or group or held != {8} or stored.formats.keys() != map_rows(spec).keys():
        raise ConfigError(
            f"the checkpoint is quantized already ({stored.label}); leave --quantization out to "
            "keep it as it is, or use none to dequantize it"
            + (", or w8a8" if held == {8} and kind != "w8a8" else ""),
            param=_PARAM,
        )
    return dict(stored.formats)


def _note(spec: ModelSpec, chosen: Precision, stored: StoredWeights) -> str:
    plain = replace(chosen, quantized={})
    share = layer_matrix_bytes(spec, chosen) / layer_matrix_bytes(spec, plain)
    formats = " and ".join(sorted({str(format) for format in chosen.quantized.values()}))
    rounded = ", and what they are multiplied by is rounded to 8 bits" if (
        chosen.int8_activations
    ) else ""  # fmt: skip
    source = f" (from {stored.label})" if stored.label else ""
    return (
        f"approximate weights: the layers' linear maps in {formats}{source}, {share:.2f} times the "
        f"bytes of {chosen.weights}{rounded}; embeddings, head and norms stay {chosen.weights}"
    )
