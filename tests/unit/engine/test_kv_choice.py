"""What `--kv-cache-dtype` means."""

from dataclasses import replace

import pytest

from tandem.engine.kv_choice import choose_kv, kv_notes
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

SPEC = ModelSpec("llama", 1000, 64, 2, 4, 2, 128, 128, 512)
PRECISION = Precision(DType.BFLOAT16, DType.FLOAT32, DType.FLOAT32)


def test_auto_leaves_what_dtype_says() -> None:
    assert choose_kv("auto", SPEC, PRECISION) == PRECISION
    assert kv_notes(SPEC, PRECISION) == ()


@pytest.mark.parametrize("kv", list(DType))
def test_float_types_change_the_cache_alone(kv: DType) -> None:
    chosen = choose_kv(str(kv), SPEC, PRECISION)
    assert chosen == replace(PRECISION, kv=kv)
    assert kv_notes(SPEC, chosen) == ()


@pytest.mark.parametrize(("kv", "share"), [(CodeType.INT8, "0.53"), (CodeType.INT4, "0.28")])
def test_an_approximate_cache_is_announced_with_its_size(kv: CodeType, share: str) -> None:
    chosen = choose_kv(str(kv), SPEC, PRECISION)
    assert chosen == replace(PRECISION, kv=kv)
    (note,) = kv_notes(SPEC, chosen)
    assert "approximate" in note
    assert f"{kv} in groups of 64, {share} times the bytes of float16" in note


def test_another_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"'fp8'; use one of: auto, .*float16.*int8, int4"):
        choose_kv("fp8", SPEC, PRECISION)


def test_heads_that_are_too_large_are_refused_with_a_remedy() -> None:
    large = replace(SPEC, head_dim=576)
    with pytest.raises(ConfigError, match="up to 512 elements, and the model's have 576; use flo"):
        choose_kv("int8", large, PRECISION)
    assert choose_kv("float16", large, PRECISION).kv is DType.FLOAT16
