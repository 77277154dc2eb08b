"""FlexLLMGen as a peer, over a module of the same signatures as `flexgen` 0.1.8."""

import dataclasses
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.gpu.cases import CaseError
from benchmarks.gpu.flexgen_peer import (
    NAMES,
    SETTINGS,
    FlexGenBlock,
    FlexGenSetting,
    find_flexgen,
    flexgen_tokens_per_s,
)

from tandem.models.catalogue import known_models
from tandem.spec.dtype import DType
from tandem.spec.precision import Precision

PRECISION = Precision.uniform(DType.FLOAT16)
GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Policy:
    """Its fields, in its order."""

    gpu_batch_size: int
    num_gpu_batches: int
    w_gpu_percent: float
    w_cpu_percent: float
    cache_gpu_percent: float
    cache_cpu_percent: float
    act_gpu_percent: float
    act_cpu_percent: float
    overlap: bool
    sep_layer: bool
    pin_weight: bool
    cpu_cache_compute: bool
    attn_sparsity: float
    compress_weight: bool
    comp_weight_config: object
    compress_cache: bool
    comp_cache_config: object


class FlexGen:
    """The module, as far as it is used."""

    DUMMY_WEIGHT = "_DUMMY_"
    Policy = Policy

    def __init__(self, *, fails: bool = False) -> None:
        self.policies: list[Policy] = []
        self.asked: list[tuple[int, int, int]] = []
        self.closed = 0
        self._fails = fails

    def CompressionConfig(
        self, num_bits: int, group_size: int, group_dim: int, symmetric: bool
    ) -> object:
        return SimpleNamespace(num_bits=num_bits)

    def TorchDevice(self, name: str) -> str:
        return name

    def TorchDisk(self, path: str) -> str:
        return path

    def TorchMixedDevice(self, base: Sequence[str]) -> tuple[str, ...]:
        return tuple(base)

    def ExecutionEnv(self, gpu: str, cpu: str, disk: str, mixed: Any) -> Any:
        assert (gpu, cpu) == ("cuda:0", "cpu")
        return SimpleNamespace(close_copy_threads=self._close)

    def _close(self) -> None:
        self.closed += 1

    def get_opt_config(self, name: str) -> str:
        assert name == "opt-6.7b"
        return name

    def OptLM(self, config: str, env: Any, path: str, policy: Policy) -> Any:
        assert path == self.DUMMY_WEIGHT
        self.policies.append(policy)
        return SimpleNamespace(generate=self._generate)

    def _generate(self, inputs: Sequence[Sequence[int]], max_new_tokens: int = 32) -> Any:
        policy = self.policies[-1]
        assert policy.gpu_batch_size * policy.num_gpu_batches == len(inputs)
        self.asked.append((len(inputs), len(inputs[0]), max_new_tokens))
        if self._fails:
            raise RuntimeError("CUDA out of memory")
        end = time.perf_counter() + 0.01
        while time.perf_counter() < end:
            pass
        return np.ones((len(inputs), len(inputs[0]) + max_new_tokens))


def block_of(gib: int, requests: int = 64, prompt: int = 512) -> FlexGenBlock:
    (opt,) = (model for model in known_models() if model.name == "opt-6.7b")
    return FlexGenBlock.of(opt.spec(), PRECISION, gib * GIB, requests, prompt, 32)


def test_weights_fill_what_a_batch_leaves_of_the_memory() -> None:
    eight, six = block_of(8), block_of(6)
    assert (eight.batches, eight.rows) == (2, 32)
    assert 0 < six.weights_percent < eight.weights_percent < 100
    assert block_of(48).weights_percent == 100
    assert block_of(8, 33).rows == 17  # as many batches of as many rows as hold all requests
    with pytest.raises(CaseError, match="no room for batches of 32"):
        block_of(1)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_block_runs_once_for_a_token_and_then_whole(setting: FlexGenSetting) -> None:
    module, block = FlexGen(), FlexGenBlock(2, 3, 40)
    prompts = [[1] * 20] * 6
    rate = flexgen_tokens_per_s(module, "opt-6.7b", block, setting, prompts, 4)
    assert 0 < rate <= 6 * 4 / 0.01
    assert module.asked == [(6, 2, 1), (6, 20, 4)]
    (policy,) = module.policies
    assert (policy.w_gpu_percent, policy.w_cpu_percent) == (40, 60)
    assert (policy.cache_gpu_percent, policy.cache_cpu_percent) == (0, 100)
    assert (policy.pin_weight, policy.cpu_cache_compute) == (setting.pinned, setting.on_cpu)
    assert not policy.compress_weight
    assert not policy.compress_cache
    assert module.closed == 1


def test_its_errors_are_a_case_s_and_its_threads_end() -> None:
    module = FlexGen(fails=True)
    with pytest.raises(CaseError, match="RuntimeError: CUDA out of memory"):
        flexgen_tokens_per_s(module, "opt-6.7b", FlexGenBlock(1, 1, 0), SETTINGS[0], [[1, 2]], 2)
    assert module.closed == 1


def test_it_is_found_by_either_name_or_not_at_all() -> None:
    asked: list[str] = []

    def by(there: str | None, error: Exception | None = None) -> Any:
        def load(name: str) -> Any:
            asked.append(name)
            if name == there:
                if error is not None:
                    raise error
                return "module"
            raise ModuleNotFoundError(name=name.partition(".")[0])

        return load

    assert find_flexgen(by(NAMES[0])) == "module"
    assert find_flexgen(by(NAMES[1])) == "module"
    assert find_flexgen(by(None)) is None
    assert asked == [NAMES[0], *NAMES, *NAMES]
    with pytest.raises(CaseError, match=r"flexgen\.flex_opt cannot be imported: no tqdm"):
        find_flexgen(by(NAMES[1], ModuleNotFoundError("no tqdm", name="tqdm")))
