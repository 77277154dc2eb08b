"""How numbers go to a device: those that a copy would wait for by way of pinned memory."""

import numpy as np
import pytest
import torch

from tandem.kernels.upload import upload

DEVICE = torch.device("meta")  # a device, and no CPU


def test_arrays_stay_where_they_are_on_the_cpu() -> None:
    array = np.arange(100_000)
    made = upload(array, torch.device("cpu"))
    array[5] = -1
    assert made[5] == -1


@pytest.mark.parametrize(("count", "pinned"), [(8192, []), (8193, [8193 * 8])])
def test_large_arrays_are_pinned_first(
    count: int, pinned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        told.append(tensor.nbytes)
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    made = upload(np.arange(count), DEVICE)
    assert told == pinned
    assert made.shape == (count,)
