"""Batches of copies, by a driver that does as `cuda.h` says."""

import ctypes
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tandem.devices import batch_copies
from tandem.devices.batch_copies import BatchCopies, NoBatchCopiesError

_C_TYPES = {
    "CUdeviceptr*": ctypes.POINTER(ctypes.c_uint64),
    "size_t*": ctypes.POINTER(ctypes.c_size_t),
    "size_t": ctypes.c_size_t,
    "CUmemcpyAttributes*": ctypes.POINTER(batch_copies._Attributes),
    "CUstream": ctypes.c_void_p,  # a pointer to a struct that is not told
}


class FakeDriver:
    """Copies at once, in the opposite order; knows one form of the function, or none."""

    def __init__(self, *names: str, error: int = 0) -> None:
        self.streams: list[int] = []
        self._error = error
        forms: dict[str, tuple[tuple[Any, ...], Any]] = {
            batch_copies._NEW: (batch_copies._NEW_ARGUMENTS, self._take),
            batch_copies._OLD: (batch_copies._OLD_ARGUMENTS, self._take_old),
        }
        for name in names:
            arguments, call = forms[name]
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(call))

    def _take_old(self, *given: Any) -> int:
        *others, failed, stream = given
        assert failed
        targets, sources, sizes, count, attributes, first, num_attributes = others
        return self._take(targets, sources, sizes, count, attributes, first, num_attributes, stream)

    def _take(
        self, targets: Any, sources: Any, sizes: Any, count: int, attributes: Any, first: Any,
        num_attributes: int, stream: int,
    ) -> int:  # fmt: skip
        assert (num_attributes, first[0]) == (1, 0)
        assert attributes[0].source_order == 1  # in the stream's order
        assert (attributes[0].flags, attributes[0].source_hint.type) == (0, 0)
        self.streams.append(stream)
        for i in reversed(range(count)):
            ctypes.memmove(targets[i], sources[i], sizes[i])
        return self._error


def _header() -> str:
    """Triton's wheel brings `cuda.h`."""
    triton = find_spec("triton")
    if triton is None or triton.origin is None:
        pytest.skip("Triton is not installed")
    path = Path(triton.origin).parent / "backends" / "nvidia" / "include" / "cuda.h"
    return path.read_text(encoding="utf-8")


def _types(arguments: str) -> tuple[Any, ...]:
    """`size_t *sizes` is of type `size_t*`."""
    found: list[Any] = []
    for each in arguments.split(","):
        kind, name = each.strip().rsplit(" ", 1)
        found.append(_C_TYPES[kind + "*" * name.count("*")])
    return tuple(found)


def test_arguments_are_those_of_the_driver_s_header() -> None:
    text = _header()
    newest = re.search(rf"#define {batch_copies._OLD}\s+__CUDA_API_PTSZ\((\w+)\)", text)
    assert newest is not None
    is_of_13 = "#define CUDA_VERSION 13" in text  # Triton 3.6 brings the header of 12.8
    assert newest[1] == (batch_copies._NEW if is_of_13 else batch_copies._OLD)
    forms = re.findall(rf"CUresult CUDAAPI ({batch_copies._OLD}(?:_v2)?)\(([^)]*)\);", text)
    found = {(name, _types(arguments)) for name, arguments in forms}
    # the name stands for the newer form, but where the header declares what libraries hold
    assert ((batch_copies._NEW, batch_copies._NEW_ARGUMENTS) in found) == is_of_13
    assert (batch_copies._OLD, batch_copies._OLD_ARGUMENTS) in found


def test_attributes_lie_as_in_the_driver_s_header() -> None:
    text = _header()
    assert re.search(
        r"struct CUmemcpyAttributes_st \{\s*CUmemcpySrcAccessOrder srcAccessOrder;[^;]*"
        r"CUmemLocation srcLocHint;[^;]*CUmemLocation dstLocHint;[^;]*unsigned int flags;[^;]*\}",
        text,
    )
    assert re.search(
        r"struct CUmemLocation_st \{\s*CUmemLocationType type;[^;]*int id;[^;]*\}", text
    )
    assert re.search(r"CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 0x1,", text)
    made = batch_copies._Attributes
    offsets = [getattr(made, name).offset for name, *_ in made._fields_]
    assert (offsets, ctypes.sizeof(made)) == ([0, 4, 12, 20], 24)


@pytest.mark.parametrize(
    "names",
    [
        (batch_copies._NEW,),
        (batch_copies._OLD,),
        (batch_copies._OLD, batch_copies._NEW),
    ],
)
def test_each_source_comes_to_its_target(names: tuple[str, ...]) -> None:
    driver = FakeDriver(*names)
    source, target = torch.arange(60).view(10, 6).clone(), torch.zeros(10, 6, dtype=torch.int64)
    step, order = source[0].nbytes, np.array([3, 0, 7], dtype=np.uint64)
    sources = source.data_ptr() + order * np.uint64(step)
    targets = target.data_ptr() + order[::-1] * np.uint64(step)
    sizes = np.array([step, step // 2, step], dtype=np.uint64)
    BatchCopies(driver).copy(targets, sources, sizes, 7)
    expected = torch.zeros_like(target)
    expected[[7, 3]] = source[[3, 7]]
    expected[0, :3] = source[0, :3]
    assert torch.equal(target, expected)
    assert driver.streams == [7]


def test_nothing_is_submitted_for_nothing() -> None:
    driver = FakeDriver(batch_copies._NEW)
    nothing = np.zeros(0, dtype=np.uint64)
    BatchCopies(driver).copy(nothing, nothing, nothing, 7)
    assert driver.streams == []


def test_a_driver_s_error_is_told() -> None:
    place = torch.zeros(2, dtype=torch.int64)
    at = np.array([place.data_ptr()], dtype=np.uint64)
    driver = FakeDriver(batch_copies._OLD, error=801)
    with pytest.raises(RuntimeError, match="of 1 copies failed with CUDA error 801"):
        BatchCopies(driver).copy(at + np.uint64(8), at, np.array([8], dtype=np.uint64), 7)


def test_where_there_are_none_it_says_why() -> None:
    with pytest.raises(NoBatchCopiesError, match=r"no cuMemcpyBatchAsync, which CUDA 12\.8 brings"):
        BatchCopies(FakeDriver())
    with pytest.raises(NoBatchCopiesError, match="no-such-library"):
        BatchCopies("no-such-library.so")
