import pytest

from tandem.engine.precision_choice import choose_precision
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


def test_sixteen_bit_checkpoints_are_widened_on_the_host_and_it_is_said() -> None:
    choice = choose_precision("auto", SPEC, host_maths=True, available_bytes=GIB)
    assert choice.precision == FLOAT32
    assert choice.note is not None
    assert "bfloat16" in choice.note


def test_weights_that_would_not_fit_widened_stay_narrow() -> None:
    available = weight_bytes(SPEC, DType.FLOAT32)
    choice = choose_precision("auto", SPEC, host_maths=True, available_bytes=available)
    assert choice.precision == BFLOAT16
    assert choice.note is not None


def test_an_accelerator_computes_in_the_checkpoint_s_type() -> None:
    choice = choose_precision("auto", SPEC, host_maths=False, available_bytes=GIB)
    assert (choice.precision, choice.note) == (BFLOAT16, None)
    with pytest.raises(ConfigError, match="unknown dtype"):
        choose_precision("int3", SPEC, host_maths=False, available_bytes=GIB)


def test_it_says_what_holds_what() -> None:
    assert str(BFLOAT16) == "bfloat16"
    mixed = Precision(DType.BFLOAT16, DType.FLOAT32, DType.FLOAT32)
    assert str(mixed) == "bfloat16 weights, float32 activations and KV"
    mixed = Precision(DType.BFLOAT16, DType.FLOAT32, DType.BFLOAT16)
    assert str(mixed) == "bfloat16 weights, float32 activations, bfloat16 KV"
