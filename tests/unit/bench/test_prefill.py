"""The prefill and copy benchmarks compute what they time."""

import pytest
import torch

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.bench import copies, prefill
from tandem.bench.prefill_cases import Prompt, make_case, tandem, torch_forms
from tandem.kernels.native_pool import NativePool
from tandem.probes.kernel_cases import HeadShape

SHAPE = HeadShape(4, 2, 16)


@pytest.mark.parametrize("prompt", [Prompt(70), Prompt(30, 90)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_variants_compute_the_same(prompt: Prompt, dtype: torch.dtype) -> None:
    case = make_case(SHAPE, prompt, dtype)
    ours = tandem(case, NativePool(1))()
    assert ours.shape == (prompt.tokens, 4, 16)
    forms = torch_forms(case)
    assert len(forms) == 2 + (dtype != torch.float32) + (prompt.prefix > 0)
    for attend in forms.values():
        torch.testing.assert_close(attend().float(), ours, rtol=2e-2, atol=2e-2)


def test_work_counts_the_keys_that_are_seen() -> None:
    assert Prompt(3, 10).flops(SHAPE) == 4 * (11 + 12 + 13) * 4 * 16


def test_every_prefill_figure_has_its_bound_and_threads_are_put_back() -> None:
    threads, told = torch.get_num_threads(), list[str]()
    config = prefill.PrefillBench((SHAPE,), (Prompt(40),), (torch.float16,), (1,), rounds=2)
    rows = prefill.run_prefill(config, told.append)
    assert told == ["prefill 40, 4/2/16 float16 1 threads"]
    assert torch.get_num_threads() == threads
    ours, theirs, _, ratio = rows
    assert ours.bound == theirs.bound
    assert ratio.bound == prefill.SLOWEST
    assert ratio.spread is not None
    assert 0 < ratio.spread[0] <= ratio.value <= ratio.spread[1]


def test_targets_are_measured() -> None:
    names = [str(cell) for cell in prefill.cells(prefill.full())]
    for prompt in ("512,", "2048,", "8192,", "512 after 4096,"):
        for shape in ("32/8/128", "32/32/128", "16/4/64"):
            assert any(f"prefill {prompt} {shape}" in name for name in names)


def test_copies_are_measured_beside_reading() -> None:
    rows = copies.run_copies(copies.CopyBench(1, 4, (1,), 2), lambda _: None)
    assert len(rows) == 8
    assert all(row.value > 0 and row.bound for row in rows)
