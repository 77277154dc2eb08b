"""Which file reads which `quantization_config`."""

from collections.abc import Callable, Mapping
from typing import Any

from tandem.quant.formats.awq import AWQ
from tandem.quant.formats.compressed_tensors import CompressedTensors
from tandem.quant.formats.config_fields import text
from tandem.quant.formats.fp8 import FP8
from tandem.quant.formats.gptq import GPTQ
from tandem.quant.formats.stored_weight import StoredQuantization
from tandem.spec.errors import ModelError

# By `quant_method`.
READERS: Mapping[str, Callable[[Mapping[str, Any]], StoredQuantization]] = {
    "gptq": GPTQ.of,
    "awq": AWQ.of,
    "compressed-tensors": CompressedTensors.of,
    "fp8": FP8.of,
    "fbgemm_fp8": FP8.of,
}


def read_quantization(config: Mapping[str, Any]) -> StoredQuantization:
    """What a `quantization_config` says.

    Raises:
        ModelError: a format, or a variety of one, that is not supported.
    """
    method = text(config, "quant_method")
    if method not in READERS:
        what = f"'{method}'" if method else "without a quant_method"
        raise ModelError(
            f"quantized checkpoints {what} are not supported; supported are: {', '.join(READERS)}. "
            "Or use the unquantized model with --quantization int8 or int4"
        )
    return READERS[method](config)
