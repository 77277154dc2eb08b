"""Whether a layer's maths may use Triton's kernels."""

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from tandem.kernels.triton_support import TritonDevice


def triton_unit(x: Tensor) -> "TritonDevice | None":
    """What the GPU has that `x` is on; None of other devices, and where Triton cannot run."""
    if x.device.type != "cuda":
        return None
    from tandem.kernels.triton_support import unit_of

    return unit_of(x.device)
