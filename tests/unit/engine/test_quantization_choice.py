"""What `--quantization` means."""

from dataclasses import replace

import pytest

from tandem.engine.sizing.fp8_choice import reason_against_fp8
from tandem.engine.sizing.quantization_choice import StoredWeights, choose_quantization
from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import num_parameters
from tandem.spec.precision import Precision
from tandem.spec.weight_format import WeightFormat

SPEC = ModelSpec("llama", 1000, 256, 2, 4, 2, 64, 704, 512)  # 704: whole groups of 32 and of 64
PRECISION = Precision(DType.BFLOAT16, DType.FLOAT32, DType.FLOAT32)
MAPS = {"q", "k", "v", "output", "gate", "up", "down"}
PLAIN = StoredWeights()
FP8 = StoredWeights("FP8", {}, is_fp8=True, widened_since="the CPU's kernels read no FP8")
KEPT_FP8 = StoredWeights("FP8", dict.fromkeys(MAPS, WeightFormat(8, 64, floats=True)), is_fp8=True)
INT4 = StoredWeights("AWQ of 4 bits", dict.fromkeys(MAPS, WeightFormat(4, 64)))
INT8 = StoredWeights("GPTQ of 8 bits", dict.fromkeys(MAPS, WeightFormat(8, 64)))


def choose(
    wanted: str, stored: StoredWeights = PLAIN, *, compiled: bool = True
) -> tuple[Precision, tuple[str, ...]]:
    return choose_quantization(wanted, SPEC, PRECISION, stored, compiled=compiled)


def test_by_default_nothing_is_rounded() -> None:
    assert choose("auto") == choose("none") == (PRECISION, ())


@pytest.mark.parametrize(
    ("wanted", "format"),
    [
        ("int8", WeightFormat(8, 64)),
        ("int4", WeightFormat(4, 64)),
        ("int4:32", WeightFormat(4, 32)),
        ("int8:64", WeightFormat(8, 64)),
    ],
)
@pytest.mark.parametrize("stored", [PLAIN, FP8])
def test_the_layers_maps_are_rounded_and_it_is_said(
    wanted: str, format: WeightFormat, stored: StoredWeights
) -> None:
    precision, (note,) = choose(wanted, stored)
    assert precision == replace(PRECISION, quantized=dict.fromkeys(MAPS, format))
    share = format.size_bytes(64, 704) / (64 * 704 * 2)
    assert f"{format}" in note
    assert f"{share:.2f} times the bytes of bfloat16" in note
    assert "approximate" in note


def test_sizes_are_those_of_the_formats() -> None:
    sizes = WeightSizes.of(SPEC, choose("int4:32")[0])
    elements = 256 * (256 + 2 * 128 + 256) + 3 * 256 * 704
    assert sizes.layer == elements // 2 + elements // 32 * 3
    assert sizes.outside == 2 * (num_parameters(SPEC) - 2 * elements)


def test_a_quantized_checkpoint_stays_as_it_is() -> None:
    precision, (note,) = choose("auto", INT4)
    assert precision == replace(PRECISION, quantized=INT4.formats or {})
    assert note == "weights quantized by AWQ of 4 bits: kept as they are"
    precision, (note,) = choose("auto", FP8)
    assert precision == PRECISION
    grows = (
        ", 2 times their bytes in the checkpoint, since the CPU's kernels read no FP8; "
        "--quantization int8 rounds them to about a byte each"
    )
    assert note == "weights quantized by FP8: kept dequantized to bfloat16" + grows
    asked_for = grows.replace(", since the CPU's kernels read no FP8", "")
    assert choose("none", replace(FP8, formats=None, widened_since="")) == (
        PRECISION,
        ("weights dequantized from FP8" + asked_for,),
    )
    assert choose("none", INT4) == (PRECISION, ("weights dequantized from AWQ of 4 bits",))


def test_floats_of_a_byte_are_kept_where_kernels_read_them() -> None:
    precision, (note,) = choose("auto", KEPT_FP8)
    assert precision == replace(PRECISION, quantized=KEPT_FP8.formats or {})
    assert note.startswith("weights quantized by FP8: kept as they are; layers for which there is ")
    sizes, wide = WeightSizes.of(SPEC, precision), WeightSizes.of(SPEC, PRECISION)
    assert sizes.layer == wide.layer // 2 + wide.layer // 2 // 64 * 4


@pytest.mark.parametrize(
    ("config", "kind", "lacking", "since"),
    [
        (EngineConfig("m"), "none", (), "the CPU's kernels"),
        (EngineConfig("m"), "emulated", (), "the CPU's kernels"),
        (EngineConfig("m"), "cuda", ("no compiler",), "Triton's kernels"),
        (EngineConfig("m", placement="p.json"), "cuda", (), "--placement"),
        (EngineConfig("m", host_layers="cpu"), "cuda", (), "--host-layers cpu"),
        (EngineConfig("m", host_layers="mlp"), "cuda", (), "--host-layers mlp"),
        (EngineConfig("m", host_layers="stream"), "cuda", (), None),
        (EngineConfig("m", plan="p.json"), "cuda", (), None),
        (EngineConfig("m"), "cuda", (), None),
    ],
)
def test_why_floats_of_a_byte_become_wider(
    config: EngineConfig, kind: str, lacking: tuple[str, ...], since: str | None
) -> None:
    found = reason_against_fp8(config, kind, lacking)
    assert (found is None) == (since is None)
    assert since is None or since in (found or "")
    assert reason_against_fp8(config, kind, lacking, in_blocks=True) is not None


def test_int8_activations_go_with_weights_of_8_bits_from_wherever() -> None:
    for stored in (PLAIN, FP8, INT8):
        precision, (note,) = choose("w8a8", stored)
        assert precision.int8_activations
        assert precision.quantized == dict.fromkeys(MAPS, WeightFormat(8, 64))
        assert "rounded to 8 bits" in note


@pytest.mark.parametrize(
    ("wanted", "stored", "named"),
    [
        ("int3", PLAIN, "'int3'; use auto, none, int8, int4 or w8a8"),
        ("int4:", PLAIN, "'int4:'"),
        ("int4:big", PLAIN, "'int4:big'"),
        ("auto:64", PLAIN, "'auto:64'"),
        ("int4:48", PLAIN, "groups of 48 are not supported"),
        ("int4:128", PLAIN, "'down' has rows of 704 .* use a group of 32 or 64"),
        ("int8", INT4, "quantized already .AWQ of 4 bits.*none"),
        ("w8a8", INT4, "quantized already"),
        ("w8a8:32", INT8, "quantized already"),
        ("int8", INT8, "quantized already.*or w8a8"),
    ],
)
def test_what_cannot_be_done_is_refused(wanted: str, stored: StoredWeights, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        choose(wanted, stored)
    assert "group" in named or caught.value.param == "quantization"


def test_rows_that_no_group_divides() -> None:
    spec = replace(SPEC, intermediate_size=700)
    with pytest.raises(ConfigError, match=r"rows of 700 .* leave --quantization out"):
        choose_quantization("int4", spec, PRECISION, PLAIN, compiled=True)


def test_int8_activations_need_the_compiled_kernels() -> None:
    with pytest.raises(ConfigError, match="w8a8 needs the compiled kernels"):
        choose("w8a8", compiled=False)
