"""What a CUDA graph does to torch's operations, without a GPU.

A graph is captured once and replayed on the same memory: sizes, addresses and all that Python knew
are as they were at the capture. So here the operations are written down with their arguments; a
replay runs them again with these, and puts results where they were put first. Whatever depended on
a number that has changed since comes out wrong, and what asks for a tensor's value is told.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ASKS_FOR_VALUES = ("_local_scalar_dense", "item", "equal", "is_nonzero")
SIZES_BY_VALUES = ("nonzero", "masked_select", "unique", "_unique2", "unique_dim", "bincount")
_FROM_THE_HOST = ("lift_fresh",)  # `torch.tensor` of Python's numbers: a copy from pageable memory


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[..., Any]
    arguments: Sequence[Any]
    options: Mapping[str, Any]
    result: Any


class FrozenOps(TorchDispatchMode):
    """Writes down torch's operations within; `replay` does them again.

    Attributes:
        refused: what no graph can hold, by the names of operations.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[_Call] = []
        self.refused: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation, and keeps it."""
        del types
        options = dict(kwargs or {})
        name = func._schema.name.partition("::")[2]
        if name in ASKS_FOR_VALUES + SIZES_BY_VALUES + _FROM_THE_HOST:
            self.refused.append(name)
        result = func(*args, **options)
        self._calls.append(_Call(func, args, options, result))
        return result

    def replay(self) -> None:
        """All of it, in the same memory."""
        for call in self._calls:
            again = call.function(*call.arguments, **call.options)
            inside = {_place(tensor) for tensor in _tensors((call.arguments, call.options))}
            for old, new in zip(_tensors(call.result), _tensors(again), strict=True):
                if _place(old) not in inside:  # else it was written, or looked at, where it lies
                    old.copy_(new)


def _tensors(values: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
