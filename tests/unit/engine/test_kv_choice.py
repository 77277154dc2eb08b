"""What `--kv-cache-dtype` and `--cpu-kv-dtype` mean."""

from dataclasses import replace

import pytest

from tandem.engine.sizing.kv_choice import choose_host_kv, choose_kv, kv_notes
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat
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


def test_floats_of_a_byte_are_announced_too() -> None:
    chosen = choose_kv("fp8", SPEC, PRECISION)
    assert chosen == replace(PRECISION, kv=NarrowFloat.FP8)
    (note,) = kv_notes(SPEC, chosen)
    assert "approximate KV cache: fp8 (e4m3) without scales, 0.50 times the bytes" in note


def test_another_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"'fp6'; use one of: auto, .*float16.*fp8, int8, int4"):
        choose_kv("fp6", SPEC, PRECISION)


def test_heads_that_are_too_large_are_refused_with_a_remedy() -> None:
    large = replace(SPEC, head_dim=576)
    with pytest.raises(ConfigError, match="up to 512 elements, and the model's have 576; use flo"):
        choose_kv("int8", large, PRECISION)
    assert choose_kv("float16", large, PRECISION).kv is DType.FLOAT16


def host(wanted: str, precision: Precision = PRECISION, **changes: int) -> Precision:
    tiers = {"host_only": False, "host_bytes": 1} | changes
    return choose_host_kv(
        wanted, SPEC, precision, host_only=bool(tiers["host_only"]), host_bytes=tiers["host_bytes"]
    )


def test_the_host_has_the_accelerator_s_type_unless_another_is_named() -> None:
    assert host("auto") == host("float32") == PRECISION
    assert host("float32", host_bytes=0, host_only=True) == PRECISION
    assert host("int8") == replace(PRECISION, host_kv=CodeType.INT8)
    assert str(host("int8")) == "bfloat16 weights, float32 activations and KV, int8 KV on the host"


@pytest.mark.parametrize(
    ("kv", "host_kv", "loss"),
    [
        (DType.FLOAT16, CodeType.INT8, "with loss"),
        (DType.BFLOAT16, DType.FLOAT16, "with loss"),
        (CodeType.INT8, DType.FLOAT32, "with loss"),
        (DType.BFLOAT16, DType.FLOAT32, "without loss"),
        (DType.BFLOAT16, NarrowFloat.FP8, "with loss"),
        (NarrowFloat.FP8, CodeType.INT8, "with loss"),
        (NarrowFloat.FP8, DType.BFLOAT16, "without loss"),
    ],
)
def test_another_type_on_the_host_is_announced(kv: KVType, host_kv: KVType, loss: str) -> None:
    *device, note = kv_notes(SPEC, replace(PRECISION, kv=kv, host_kv=host_kv))
    assert note.startswith(f"KV on the host: {host_kv}")
    assert f"on the accelerator {kv}; outputs depend on where a request's KV lies" in note
    assert note.endswith(f"converted, {loss} on the way back")
    blocks = kv_notes(SPEC, replace(PRECISION, kv=kv, host_kv=host_kv), in_blocks=True)
    assert blocks[-1].endswith("depend on where a request's KV lies"), "nothing is converted there"
    assert len(device) == (not isinstance(kv, DType))
    assert all(n.startswith(f"approximate KV cache on the accelerator: {kv} ") for n in device)


def test_a_host_type_without_a_host_tier_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--cpu-kv-dtype int8 .* use --kv-cache-dtype int8$"):
        host("int8", host_only=True, host_bytes=0)
    with pytest.raises(ConfigError, match=r"--cpu-memory leaves none there; raise it") as error:
        host("int8", host_bytes=0)
    assert error.value.param == "cpu_kv_dtype"
    with pytest.raises(ConfigError, match=r"unknown cpu_kv_dtype 'fp6'; use one of: auto, .*int4$"):
        host("fp6")
    large = replace(SPEC, head_dim=576)
    with pytest.raises(ConfigError, match="--cpu-kv-dtype int4 takes heads of up to 512"):
        choose_host_kv("int4", large, PRECISION, host_only=False, host_bytes=1)
