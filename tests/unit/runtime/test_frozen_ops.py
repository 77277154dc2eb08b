"""What depends on a number that has changed since is told apart, or comes out wrong."""

import torch

from tandem.runtime.frozen_ops import FrozenOps


def test_a_number_of_the_host_s_shows() -> None:
    position, out = torch.tensor([2.0]), torch.zeros(1)
    with FrozenOps() as frozen:
        out.copy_(position * 3)
    position.fill_(5.0)
    frozen.replay()
    assert out.tolist() == [15.0]
    with FrozenOps() as frozen:
        number = int(position)
        out.copy_(torch.ones(1) * number)
    assert "_local_scalar_dense" in frozen.refused
    position.fill_(7.0)
    frozen.replay()
    assert out.tolist() == [5.0]


def test_sizes_by_values_and_numbers_brought_to_the_device_are_refused() -> None:
    with FrozenOps() as frozen:
        torch.zeros(3).nonzero()
        torch.tensor(2.0)
    assert frozen.refused == ["nonzero", "lift_fresh"]
