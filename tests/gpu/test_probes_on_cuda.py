"""A profile's probes on a CUDA device: rates that a device can have, at small sizes."""

import torch

from tandem.devices.cuda.probe import CudaProbe
from tandem.kernels import native
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType

_CABLE_BYTES_PER_S = 1e12  # more than any link carries


def test_memory_products_launches_and_link_are_measured() -> None:
    if not native.available():
        return  # there is no profile then
    from tandem.models.linear import dequantize, multiply_codes
    from tandem.probes.accelerator import copy_to_device, measure_accelerator
    from tandem.probes.effort import Effort
    from tandem.probes.kernel_cases import HeadShape
    from tandem.probes.linear_cases import quantized_kind
    from tandem.probes.torch_accelerator import CodeMaths, TorchAccelerator

    effort = Effort(
        rounds=2, kinds=(quantized_kind(4, 64),), sides=(256, 1024), rows=(1, 64, 200),
        heads=HeadShape(4, 2, 64), kv=(DType.FLOAT16, CodeType.INT4), batches=(1, 8),
        contexts=(64, 512), prompts=(1, 2), prompt_tokens=(64, 512), memory_bytes=0,
        link_bytes=(4096, 16 << 20), disk_bytes=0, trips=0,
    )  # fmt: skip
    probed = TorchAccelerator(
        CudaProbe(torch.device("cuda", 0)), CodeMaths(multiply_codes, dequantize)
    )
    found = measure_accelerator(probed, effort)
    assert found.name
    assert found.kernel_s < found.launch_s < 10e-3
    assert [times.kind for times in found.linear] == [*DType, "int4/64"]
    assert [times.kind for times in found.attention] == ["float16", "int4"]
    for times in (*found.attention, *found.prompts):
        assert times.surface.at(1, 512).seconds < times.surface.at(8, 512).seconds * 2
    assert [codes.kind for codes in found.codes] == ["int4/64", "kv int4"]
    for direction in (found.h2d, found.d2h):
        rate = (16 << 20) / direction.pinned.seconds[-1]
        assert 0.1e9 < rate < _CABLE_BYTES_PER_S
        assert direction.both_bytes_per_s < 2 * rate
    assert copy_to_device(probed, 1000)() == 1000
