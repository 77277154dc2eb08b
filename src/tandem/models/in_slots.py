"""What belongs to a layer whose weights are now in one slot and now in another."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, slots=True)
class Moving(Generic[_T]):
    """Layers that come to slots.

    Attributes:
        slots: by layer, what there is of it in each slot.
        slot_of: where a layer lies that has come.
    """

    slots: Mapping[int, Sequence[_T]]
    slot_of: Callable[[int], int]

    def each(self, made: Callable[[int, _T], _U]) -> "Moving[_U]":
        """What is made of a layer in each slot."""
        slots = {n: [made(n, each) for each in slots] for n, slots in self.slots.items()}
        return Moving(slots, self.slot_of)


def in_slots(at_rest: Mapping[int, _T], moving: Moving[_T] | None) -> Mapping[int, _T]:
    """By layer, what there is of it where it lies now."""
    return at_rest if moving is None else _InSlots(at_rest, moving)


class _InSlots(Mapping[int, _T]):
    def __init__(self, at_rest: Mapping[int, _T], moving: Moving[_T]) -> None:
        self._at_rest, self._moving = at_rest, moving

    def __getitem__(self, layer: int) -> _T:
        slots = self._moving.slots.get(layer)
        return self._at_rest[layer] if slots is None else slots[self._moving.slot_of(layer)]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self._at_rest, *self._moving.slots}))

    def __len__(self) -> int:
        return len({*self._at_rest, *self._moving.slots})
