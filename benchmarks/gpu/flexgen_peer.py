"""FlexLLMGen with weights of one value on the measured device, by what its authors run: OPT alone,
a block of batches, weights and cache divided between GPU and host by percentages.

Its sources are on no package index under that name; `flexgen` 0.1.8, as it was called then, is one
wheel of Python alone, which wants `attrs` and `tqdm` beside transformers: `PEERS=WHEEL:WHEEL
benchmarks/gpu/run_all.sh` lets them be imported as they lie.
"""

import importlib
import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.cases import CaseError

from tandem.bench.generation import Prompts
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_matrix_bytes, num_parameters
from tandem.spec.precision import Precision

NAMES = "flexllmgen.flex_opt", "flexgen.flex_opt"
NOT_THERE = "FlexLLMGen was not run: neither flexllmgen nor flexgen is there (PEERS=WHEEL)"
_MOST_BATCH = 32
_ALL = 100
_LOADED_LAYERS = 3  # on the device at once: one in use, one on its way, one given back
_WORK_COPIES = 4  # of a prompt's scores


@dataclass(frozen=True, slots=True)
class FlexGenSetting:
    """What its authors vary.

    Attributes:
        pinned: weights in host memory are. on_cpu: the CPU attends to the cache.
    """

    pinned: bool
    on_cpu: bool

    def __str__(self) -> str:
        weights = "pinned" if self.pinned else "pageable"
        return f"FlexLLMGen, {weights} weights, {'CPU' if self.on_cpu else 'GPU'} attends"


SETTINGS = tuple(
    FlexGenSetting(pinned, on_cpu) for on_cpu in (False, True) for pinned in (True, False)
)


@dataclass(frozen=True, slots=True)
class FlexGenBlock:
    """A block of batches: one pass over the layers serves all.

    Attributes:
        rows: of a batch. weights_percent: of the weights, on the GPU.
    """

    batches: int
    rows: int
    weights_percent: int

    @staticmethod
    def of(
        spec: ModelSpec,
        precision: Precision,
        memory_bytes: int,
        requests: int,
        prompt_tokens: int,
        new_tokens: int,
    ) -> "FlexGenBlock":
        """As many weights on the GPU as leave room for layers on their way, a batch's activations
        and the scores of its prompts, and a layer's cache of a batch.

        Raises:
            CaseError: there is no room for that.
        """
        batches = math.ceil(requests / _MOST_BATCH)
        rows = math.ceil(requests / batches)
        size, tokens = precision.activations.size_bytes, rows * (prompt_tokens + new_tokens)
        layer = layer_matrix_bytes(spec, precision)
        scores = _WORK_COPIES * rows * spec.num_heads * prompt_tokens**2 * size
        hidden = batches * tokens * spec.hidden_size * size
        cache = 2 * 2 * tokens * spec.hidden_size * size  # one in use, one on its way
        left = memory_bytes - _LOADED_LAYERS * layer - scores - hidden - cache
        if left < 0:
            raise CaseError(f"FlexLLMGen has no room for batches of {rows}")
        share = left / (num_parameters(spec) * precision.weights.size_bytes)
        return FlexGenBlock(batches, rows, min(_ALL, int(share * _ALL)))


def find_flexgen(import_module: Callable[[str], Any] = importlib.import_module) -> Any | None:
    """Its module; None: it is not there.

    Raises:
        CaseError: it is there, but cannot be imported.
    """
    for name in NAMES:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise CaseError(f"{name} cannot be imported: {error}") from error
        except Exception as error:  # the peer's own errors are of any type
            raise CaseError(f"{name} cannot be imported: {error}") from error
    return None


def flexgen_tokens_per_s(
    flexgen: Any, model: str, block: FlexGenBlock, setting: FlexGenSetting, prompts: Prompts,
    new_tokens: int,
) -> float:  # fmt: skip
    """Of the whole block, after one of a token each; in 16 bits, nothing compressed.

    Args:
        model: by its name of it. prompts: all equally long, as many as the block has.

    Raises:
        CaseError: it cannot run so.
    """
    with TemporaryDirectory() as folder:
        try:
            return _run(flexgen, model, block, setting, prompts, new_tokens, folder)
        except Exception as error:  # noqa: BLE001 - the peer's own errors are of any type
            # without its frames, which hold gigabytes
            raise CaseError(f"{type(error).__name__}: {error}") from None


def _run(
    flexgen: Any, model: str, block: FlexGenBlock, setting: FlexGenSetting, prompts: Prompts,
    new_tokens: int, folder: str,
) -> float:  # fmt: skip
    gpu, cpu, disk = (
        flexgen.TorchDevice("cuda:0"), flexgen.TorchDevice("cpu"), flexgen.TorchDisk(folder),
    )  # fmt: skip
    env = flexgen.ExecutionEnv(
        gpu=gpu, cpu=cpu, disk=disk, mixed=flexgen.TorchMixedDevice([gpu, cpu, disk])
    )
    with closing(_Closing(env.close_copy_threads)):
        policy = _policy(flexgen, block, setting)
        # its weights go with it
        engine = flexgen.OptLM(flexgen.get_opt_config(model), env, flexgen.DUMMY_WEIGHT, policy)
        engine.generate([ids[:2] for ids in prompts], max_new_tokens=1)
        begin = time.perf_counter()
        made = engine.generate(list(prompts), max_new_tokens=new_tokens)
        seconds = time.perf_counter() - begin
    return len(made) * new_tokens / seconds


def _policy(flexgen: Any, block: FlexGenBlock, setting: FlexGenSetting) -> Any:
    few_bits = flexgen.CompressionConfig(num_bits=4, group_size=64, group_dim=0, symmetric=False)
    return flexgen.Policy(
        gpu_batch_size=block.rows,
        num_gpu_batches=block.batches,
        w_gpu_percent=block.weights_percent,
        w_cpu_percent=_ALL - block.weights_percent,
        cache_gpu_percent=0,
        cache_cpu_percent=_ALL,
        act_gpu_percent=_ALL,
        act_cpu_percent=0,
        overlap=True,
        sep_layer=True,
        pin_weight=setting.pinned,
        cpu_cache_compute=setting.on_cpu,
        attn_sparsity=1.0,
        compress_weight=False,
        comp_weight_config=few_bits,
        compress_cache=False,
        comp_cache_config=few_bits,
    )


class _Closing:
    """Calls something when it is closed."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = close

    def close(self) -> None:
        self._close()
