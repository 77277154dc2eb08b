"""What `--max-model-len` means where rotations depend on length."""

import pytest

from tandem.engine.sizing.context_length import model_for_length, wanted_tokens
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec, RopeSpec

LONG = RopeSpec(
    kind="longrope",
    original_max_positions=4096,
    divisors=(1.0,) * 8,
    long_divisors=(2.0,) * 8,
    longest_positions=131072,
)
SPEC = ModelSpec("phi3", 1000, 64, 1, 4, 2, 16, 128, 4096, rope=LONG)


@pytest.mark.parametrize("length", [None, 17, 4096])
def test_by_default_rotations_are_exact_and_a_note_says_what_can_be_had(
    length: int | None,
) -> None:
    spec, (note,) = model_for_length(SPEC, length)
    assert spec is SPEC
    assert note == (
        "rotary scaling 'longrope': up to 4096 tokens per request; --max-model-len up to 131072 "
        "rotates all requests for that length"
    )


def test_longer_requests_rotate_all_of_them_and_that_is_said() -> None:
    spec, (note,) = model_for_length(SPEC, 8192)
    assert spec == SPEC.for_length(8192) != SPEC
    assert wanted_tokens(EngineConfig("any", max_model_len=8192), spec) == 8192
    assert "'longrope' for 8192 tokens, in shorter requests too" in note


def test_other_models_have_nothing_to_say() -> None:
    plain = ModelSpec("llama", 1000, 64, 1, 4, 2, 16, 128, 4096, rope=RopeSpec())
    assert model_for_length(plain, 8192) == (plain, ())


def test_what_no_rotation_reaches_is_refused() -> None:
    spec, _ = model_for_length(SPEC, 131073)
    with pytest.raises(ConfigError, match="131073 is beyond the model's 131072 positions"):
        wanted_tokens(EngineConfig("any", max_model_len=131073), spec)
