import pytest

from tandem.bench.host_bounds import HostLimits, decode_bound, prefill_bound
from tandem.bench.host_model import LLAMA_246M
from tandem.models.config import read_model_spec
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import num_parameters

READ, GEMM = 20e9, 200e9


@pytest.fixture
def spec(tmp_path) -> ModelSpec:
    LLAMA_246M.write(tmp_path, DType.FLOAT32)
    return read_model_spec(tmp_path)


def test_the_shape_is_the_one_of_its_name(spec: ModelSpec) -> None:
    assert round(num_parameters(spec) / 1e6) == 246
    assert spec.eos_token_ids == ()


def test_one_row_is_bound_by_reading_the_weights(spec: ModelSpec) -> None:
    read_bytes = (num_parameters(spec) - spec.vocab_size * spec.hidden_size) * 4
    bound = decode_bound(spec, DType.FLOAT32, HostLimits(READ, 1e15), 1, 0)
    assert bound == pytest.approx(READ / read_bytes)
    half = decode_bound(spec, DType.BFLOAT16, HostLimits(READ, 1e15), 1, 0)
    assert half == pytest.approx(2 * bound)


def test_many_rows_are_bound_by_products(spec: ModelSpec) -> None:
    limits = HostLimits(1e15, GEMM)
    assert decode_bound(spec, DType.FLOAT32, limits, 64, 100) == pytest.approx(
        decode_bound(spec, DType.FLOAT32, limits, 32, 100)
    )
    flops = 2 * (num_parameters(spec) - 2 * spec.vocab_size * spec.hidden_size)
    assert 0.9 * GEMM / flops < prefill_bound(spec, DType.FLOAT32, limits, 512) < GEMM / flops
