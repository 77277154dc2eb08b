from dataclasses import replace

import pytest

from tandem.engine.sizing.precision_choice import PrecisionChoice, choose_precision
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import weight_bytes
from tandem.spec.precision import Precision
from tandem.spec.units import GIB

SPEC = ModelSpec(
    architecture="llama",
    vocab_size=1000,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=128,
    max_positions=512,
)
FLOAT32, BFLOAT16 = (Precision.uniform(dtype) for dtype in (DType.FLOAT32, DType.BFLOAT16))


def choose(
    wanted: str = "auto",
    *,
    host_maths: bool = True,
    compiled: bool = True,
    available_bytes: int = GIB,
) -> PrecisionChoice:
    return choose_precision(
        wanted, SPEC, host_maths=host_maths, compiled=compiled, available_bytes=available_bytes
    )


def test_compiled_kernels_read_the_checkpoint_as_it_is_and_compute_in_float32() -> None:
    choice = choose()
    assert choice.precision == Precision(DType.BFLOAT16, DType.FLOAT32, DType.FLOAT32)
    assert choice.note is not None
    assert "bfloat16 weights" in choice.note


def test_who_asks_for_a_type_gets_weights_and_kv_in_it() -> None:
    choice = choose("float16")
    assert choice.precision == Precision(DType.FLOAT16, DType.FLOAT32, DType.FLOAT16)
    assert choice.note is None
    assert choose("float32").precision == FLOAT32


def test_for_torch_sixteen_bit_checkpoints_are_widened_and_it_is_said() -> None:
    choice = choose(compiled=False)
    assert choice.precision == FLOAT32
    assert choice.note is not None
    assert "bfloat16" in choice.note
    assert choose("bfloat16", compiled=False).precision == BFLOAT16


def test_weights_that_would_not_fit_widened_stay_narrow() -> None:
    choice = choose(compiled=False, available_bytes=weight_bytes(SPEC, DType.FLOAT32))
    assert choice.precision == BFLOAT16
    assert choice.note is not None


@pytest.mark.parametrize("compiled", [False, True])
def test_an_accelerator_computes_in_the_checkpoint_s_type(compiled: bool) -> None:
    choice = choose(host_maths=False, compiled=compiled)
    assert (choice.precision, choice.note) == (BFLOAT16, None)
    with pytest.raises(ConfigError, match="unknown dtype"):
        choose("int3", host_maths=False)


def test_it_says_what_holds_what() -> None:
    assert str(BFLOAT16) == "bfloat16"
    mixed = Precision(DType.BFLOAT16, DType.FLOAT32, DType.FLOAT32)
    assert str(mixed) == "bfloat16 weights, float32 activations and KV"
    mixed = Precision(DType.BFLOAT16, DType.FLOAT32, DType.BFLOAT16)
    assert str(mixed) == "bfloat16 weights, float32 activations, bfloat16 KV"


def test_without_units_for_bfloat16_checkpoints_are_computed_in_float16_and_it_is_said() -> None:
    choice = on_turing("auto", SPEC)
    assert choice.precision == Precision.uniform(DType.FLOAT16)
    assert choice.note is not None
    assert "--dtype bfloat16 keeps" in choice.note
    assert on_turing("bfloat16", SPEC).precision == BFLOAT16
    narrow = replace(SPEC, dtype=DType.FLOAT16)
    assert on_turing("auto", narrow) == PrecisionChoice(Precision.uniform(DType.FLOAT16))


@pytest.mark.parametrize("architecture", ["gemma2", "gemma3", "gemma3_multimodal"])
def test_a_model_beyond_float16_s_range_stays_in_bfloat16_and_it_is_said(architecture: str) -> None:
    choice = on_turing("auto", replace(SPEC, architecture=architecture))
    assert choice.precision == BFLOAT16
    assert choice.note is not None
    assert "exceed float16's range" in choice.note


def on_turing(wanted: str, spec: ModelSpec) -> PrecisionChoice:
    return choose_precision(
        wanted, spec, host_maths=False, compiled=True, available_bytes=GIB, has_bfloat16=False
    )
