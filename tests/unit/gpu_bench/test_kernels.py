"""Which kernels are measured, and of what memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.gpu.cases import CaseError
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import ModelFolder
from benchmarks.gpu.kernels_part import OURS, TORCH, _Kernels
from benchmarks.gpu.tiny_scale import tiny

from tandem.spec.kv_type import CodeType


@pytest.fixture
def kernels(tmp_path: Path) -> _Kernels:
    scale = tiny()
    with ModelFolder(scale.kernels.shape, scale.dtype) as model:
        return _Kernels(scale, model.spec, Findings("kernels", "", {}, tmp_path / "kernels.json"))


def test_pages_are_read_in_turns_that_no_cache_holds(
    kernels: _Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer of few bits stays in a GPU's cache, which is faster than the memory it stands for."""
    read: list[int] = []

    def attend(query: torch.Tensor, pages: torch.Tensor, plan: object) -> None:
        read.append(pages.data_ptr())

    stand_in = SimpleNamespace(plan=lambda attention: None, attend=attend)
    monkeypatch.setattr(kernels, "_kernels", lambda kv: stand_in)
    kernels._decode(2, 100, CodeType.INT4)
    copies = tiny().kernels.copies
    assert len(set(read)) == copies > 1
    assert read[-copies:] != [read[-1]] * copies


def test_a_library_that_fails_is_a_note_and_comes_last(
    kernels: _Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises: one that compiles when it is called has no compiler there."""

    def plan(rows: object) -> Any:
        raise RuntimeError("nvcc is not found")

    monkeypatch.setattr(kernels, "_prompts", lambda name: SimpleNamespace(name=name, plan=plan))
    cases = kernels.cases()
    by_others = [name for name in cases if name.endswith((", torch", ", flashinfer"))]
    assert by_others
    assert list(cases)[-len(by_others) :] == by_others
    with pytest.raises(CaseError, match="RuntimeError: nvcc is not found"):
        cases[by_others[-1]](Deadline.after(1.0))


def test_experts_that_ask_the_host_which_are_chosen_are_not_recorded(
    kernels: _Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, as large steps go before compute capability 8.0."""
    launched: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        kernels, "_read", lambda *_, launched=(), kept=launched: kept.append(launched)
    )
    cases = kernels.cases()
    cases["4 experts, bfloat16"](Deadline.after(1.0))
    assert set(launched) == {(OURS, TORCH)}
