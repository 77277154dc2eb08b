"""What tensor operations really allocate, seen through torch's dispatcher."""

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Counts the storages made while it is entered, as long as anything holds them."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self._given: set[int] = set()
        self.peak_bytes = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        inputs = {_address(t) for t in tree_leaves((args, kwargs or {})) if _is_tensor(t)}
        result = func(*args, **(kwargs or {}))
        self._live = {a: held for a, held in self._live.items() if not held[0].expired()}
        for tensor in filter(_is_tensor, tree_leaves(result)):
            address = _address(tensor)
            if address not in self._live and address not in inputs:
                storage = tensor.untyped_storage()
                self._live[address] = (StorageWeakRef(storage), storage.nbytes())
        self.peak_bytes = max(self.peak_bytes, sum(size for _, size in self._live.values()))
        return result


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
