"""Machine code of kernels that hand rows to the host, as Triton's interpreter may do it: loads and
stores of counters in host memory, and the clock.
"""

import ctypes
import re
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

_Registers = dict[str, int]


def install(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], int] = time.monotonic_ns) -> None:
    """Until the test ends, the interpreter takes assembly of the few instructions that are here.

    Args:
        clock: the device's, in nanoseconds.
    """
    from triton.runtime import interpreter

    def create(
        self: object, text: str, constraints: str, values: Sequence[interpreter.TensorHandle],
        types: Sequence[Any], is_pure: bool, pack: int,
    ) -> SimpleNamespace:  # fmt: skip
        given = {f"${1 + number}": int(each.data.item()) for number, each in enumerate(values)}
        if "%globaltimer" in text:
            given["%globaltimer"] = clock()
        result = _run(text, given)["$0"]
        (kind,) = types
        size = np.uint64 if constraints.startswith("=l") else np.uint32
        whole = np.array([result & np.iinfo(size).max], dtype=size)
        handle = interpreter.TensorHandle(whole.view(f"i{whole.itemsize}"), kind)
        return SimpleNamespace(get_result=lambda number: handle)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_inline_asm", create)


def _run(text: str, given: Mapping[str, int]) -> _Registers:
    held = dict(given)
    for line in text.strip("{} ").split(";"):
        if line.strip():
            name, _, operands = line.strip().partition(" ")
            _INSTRUCTIONS[name](held, *(each.strip() for each in operands.split(",") if each))
    return held


def _at(held: _Registers, operand: str) -> int:
    """The address that an operand in brackets is."""
    found = re.fullmatch(r"\[(\$\d)\]", operand)
    assert found is not None
    return held[found[1]]


def _fence(held: _Registers) -> None:
    """One thread sees its own writes, and others' of one processor in their order."""


def _load(held: _Registers, target: str, source: str) -> None:
    time.sleep(0)  # whoever raises it may be a thread of Python's
    held[target] = ctypes.c_uint32.from_address(_at(held, source)).value


def _store(size: type[ctypes.c_uint32] | type[ctypes.c_uint64]) -> Callable[..., None]:
    def store(held: _Registers, target: str, source: str) -> None:
        size.from_address(_at(held, target)).value = held[source]

    return store


def _move(held: _Registers, target: str, source: str) -> None:
    held[target] = held[source]


_INSTRUCTIONS: Mapping[str, Callable[..., None]] = {
    "fence.acq_rel.sys": _fence,
    "ld.acquire.sys.global.u32": _load,
    "st.relaxed.sys.global.u32": _store(ctypes.c_uint32),
    "st.relaxed.sys.global.u64": _store(ctypes.c_uint64),
    "mov.u32": _move,
    "mov.u64": _move,
}
