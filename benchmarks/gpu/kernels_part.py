"""Kernels of the accelerator beside its memory's rate and torch's best."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.gpu.cases import Case, CaseError, run_cases
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import ModelFolder
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.sizes import KernelSizes, MixtureSizes
from torch import Tensor

from tandem.bench.records import BenchRow, row_of_samples
from tandem.kernels.open_prompts import NoPromptLibraryError, open_prompts
from tandem.kernels.prompt_kernels import PromptLibrary, prompt_rows
from tandem.kernels.sampling import sample
from tandem.kernels.tier_kernels import TierKernels
from tandem.kernels.triton_support import unit_of
from tandem.memory.page import KVPageSpec
from tandem.models.expert_steps import ExpertSteps
from tandem.models.layer_state import LayerState
from tandem.models.layer_steps import gated
from tandem.models.linear import linear
from tandem.models.weight_layout import Affine, Modules
from tandem.plan.binding import CounterNumbers, SamplingRows, TierAttention
from tandem.probes.interleave import PairedRatio, paired_ratio
from tandem.probes.kernel_cases import BLOCK_SIZE, HeadShape, Workload, make_layers
from tandem.probes.kernel_pages import code_pages, float_pages, held_dtype
from tandem.probes.timing import timed
from tandem.quant.quantize import quantize
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.quant.scaled_floats import ScaledFloats
from tandem.runtime.choose_kernels import choose_kernels, page_shape
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat
from tandem.spec.model import ExpertSpec, ModelSpec
from tandem.spec.tier import Tier
from tandem.spec.weight_format import WeightFormat

OURS, TORCH, COPY = "ours", "torch best", "copy"
_FORMATS = WeightFormat(8, 64), WeightFormat(8, 128, floats=True), WeightFormat(4, 128)
_DRAWS = {"greedy": (0.0, 1.0), "drawn": (0.8, 1.0), "top-p": (0.8, 0.9)}
"""Temperature and top-p of rows."""
_COPY_BYTES = 256 << 20
_LEAST_S = 2e-3  # of a sample
_FEW_CALLS, _MOST_CALLS = 4, 256

Call = Callable[[int], object]  # its number: which of several equal inputs to take


def measure_kernels(scale: Scale, limit: Deadline, found: Findings) -> None:
    """Attention, linear maps, dequantization, sampling."""
    with ModelFolder(scale.kernels.shape, scale.dtype) as model, torch.inference_mode():
        run_cases(_Kernels(scale, model.spec, found).cases(), limit, found)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt in shuffled blocks."""

    tokens: int
    attention: TierAttention

    @staticmethod
    def of(tokens: int) -> "Prompt":
        """So long a one."""
        blocks = -(-tokens // BLOCK_SIZE)
        order = np.random.default_rng(2).permutation(blocks)
        attention = TierAttention(
            token_index=None,
            query_start=np.array([0, tokens], dtype=np.int32),
            num_decode=0,
            positions=np.arange(tokens, dtype=np.int32),
            block_table=order.astype(np.int32)[None],
            block_index=None,
        )
        return Prompt(tokens, attention)


class _Kernels:
    def __init__(self, scale: Scale, spec: ModelSpec, found: Findings) -> None:
        self._sizes: KernelSizes = scale.kernels
        self._scale, self._spec, self._found = scale, spec, found
        self._probed = scale.probed()
        self._device = self._probed.device
        self._dtype: torch.dtype = getattr(torch, scale.dtype.value)
        self._heads = HeadShape(spec.num_heads, spec.num_kv_heads, spec.head_dim)
        size = min(_COPY_BYTES, self._probed.memory_bytes // 8)
        self._source = torch.ones(size, dtype=torch.uint8, device=self._device)
        self._target = torch.zeros_like(self._source)

    def cases(self) -> dict[str, Case]:
        """Everything, by name: the kernels that serve first."""
        kinds: tuple[KVType, ...] = (
            self._scale.dtype, NarrowFloat.FP8, CodeType.INT8, CodeType.INT4,
        )  # fmt: skip
        made: dict[str, Callable[[], None]] = {}
        for rows, keys in self._sizes.decode:
            for kv in kinds:
                made[f"decode, {rows} x {keys}, {kv}"] = partial(self._decode, rows, keys, kv)
        for tokens in self._sizes.prompts:
            made[f"prefill, {tokens}"] = partial(self._prefill, tokens)
        for outputs, inputs in self._sizes.matrices:
            for format in _FORMATS:
                name = f"{outputs} x {inputs}, {format}"
                made[f"linear, {name}"] = partial(self._linear, outputs, inputs, format)
                made[f"dequantize, {name}"] = partial(self._dequantize, outputs, inputs, format)
        for rows in self._sizes.sampled:
            for kind in _DRAWS:
                made[f"sampling, {kind}, {rows} rows"] = partial(self._sampling, kind, rows)
        for sizes in self._sizes.mixtures:
            for format in (None, _FORMATS[-1]):
                name = f"{sizes.count} experts, {format or self._scale.dtype}"
                made[name] = partial(self._experts, sizes, format)
        # last: one that is compiled when it is first used may take what time there is
        for name in ("torch", "flashinfer"):
            for tokens in self._sizes.prompts:
                made[f"prefill, {tokens}, {name}"] = partial(self._by_libraries, name, tokens)
        return {name: lambda _, run=run: run() for name, run in made.items()}

    # --- attention ------------------------------------------------------------------------------

    def _kernels(self, kv: KVType) -> TierKernels:
        page = KVPageSpec.of_model(self._spec, dtype=kv, block_size=BLOCK_SIZE)
        return choose_kernels(self._spec, page, self._device, self._dtype)[Tier.DEVICE]

    def _pages(self, count: int, kv: KVType) -> Tensor:
        if isinstance(kv, CodeType):
            return code_pages(self._heads, count, kv).to(self._device)
        return float_pages(self._heads, count, held_dtype(kv)).to(self._device)

    def _decode(self, rows: int, keys: int, kv: KVType) -> None:
        kernels, load = self._kernels(kv), Workload("equal", (keys,) * rows)
        pages = self._pages(load.num_blocks, kv)
        # as many layers as no cache holds together: a GPU's would keep one of few bits
        layers = [pages, *(pages.clone() for _ in range(self._sizes.copies - 1))]
        (case,) = make_layers(self._heads, load, load.num_blocks, self._dtype)
        plan, query = kernels.plan(case.attention), case.query.to(self._device)
        variants: dict[str, Call] = {
            OURS: lambda i: kernels.attend(query, layers[i % len(layers)], plan)
        }
        if isinstance(kv, DType):
            variants[TORCH] = self._torch_attention(rows, 1, keys, causal=False)
        size = pages.nbytes * rows * keys / (load.num_blocks * BLOCK_SIZE)
        name = f"decode, {rows} rows of {keys} keys, {self._heads}, KV {kv}"
        self._read(name, variants, size)

    def _prefill(self, tokens: int) -> None:
        prompt = Prompt.of(tokens)
        best = self._torch_attention(1, tokens, tokens, causal=True)
        samples = self._read_prompt(prompt, {TORCH: lambda query, pages: best(0)})
        ratio = paired_ratio(samples[TORCH], samples[OURS])
        self._found.add(*_over_torch(self._name_of(prompt), ratio))

    def _by_libraries(self, name: str, tokens: int) -> None:
        """In cases of their own: a library that fails takes no other's figures with it.

        Raises:
            CaseError: it cannot run here.
        """
        library, prompt = self._prompts(name), Prompt.of(tokens)
        if library is None:
            return
        try:
            calls = library.plan(prompt_rows(prompt.attention, 0))
            samples = self._read_prompt(prompt, {library.name: calls.attend}, known=(OURS,))
        except Exception as error:  # a library's own errors are of any type
            raise CaseError(f"{type(error).__name__}: {error}") from error
        ratio, case = paired_ratio(samples[library.name], samples[OURS]), self._name_of(prompt)
        metric = f"speed over {library.name}, paired"
        self._found.add(BenchRow(case, OURS, metric, ratio.median, "", None, ratio.spread))

    def _read_prompt(
        self,
        prompt: "Prompt",
        others: Mapping[str, Callable[[Tensor, Tensor], object]],
        known: Sequence[str] = (),
    ) -> Mapping[str, Sequence[float]]:
        """Seconds of ours and of others' calls, which are given queries and pages.

        Args:
            known: whose rates are told elsewhere.
        """
        kernels, kv, heads = self._kernels(self._scale.dtype), self._scale.dtype, self._heads
        pages = self._pages(prompt.attention.block_table.size, kv)
        plan = kernels.plan(prompt.attention)
        query = torch.randn(prompt.tokens, heads.heads, heads.head_dim)
        query = query.to(self._device, self._dtype)
        variants: dict[str, Call] = {OURS: lambda _: kernels.attend(query, pages, plan)}
        variants |= {name: lambda _, call=call: call(query, pages) for name, call in others.items()}
        samples = self._samples(variants)
        flops = 2 * prompt.tokens * prompt.tokens * heads.heads * heads.head_dim
        for name, seconds in samples.items():
            if name in known:
                continue
            rates = [flops / each / 1e12 for each in seconds]
            self._found.add(row_of_samples(self._name_of(prompt), name, "rate", rates, "TFLOP/s"))
        return samples

    def _name_of(self, prompt: "Prompt") -> str:
        return f"prefill, {prompt.tokens} tokens, {self._heads}, {self._scale.dtype}"

    def _prompts(self, name: str) -> PromptLibrary | None:
        """Another library's kernels for prompts, where it is there; noted if not."""
        spec = self._spec
        shape = page_shape(
            KVPageSpec.of_model(spec, dtype=self._scale.dtype, block_size=BLOCK_SIZE)
        )
        scale, soft_cap = spec.attention_scale, spec.attention_soft_cap
        if self._device.type != "cuda":
            return None
        try:
            return open_prompts(
                name, self._device, spec.num_heads, shape, scale, soft_cap, self._dtype
            )
        except NoPromptLibraryError as error:
            self._found.note(f"prompts by {name} were not measured: {error}")
            return None

    def _torch_attention(self, rows: int, queries: int, keys: int, *, causal: bool) -> Call:
        """On contiguous keys and values of its own, which nobody has to page."""
        heads = self._heads

        def random(count: int, tokens: int) -> Tensor:
            made = torch.randn(rows, count, tokens, heads.head_dim, device=self._device)
            return made.to(self._dtype)

        q = random(heads.heads, queries)
        k, v = (random(heads.kv_heads, keys) for _ in range(2))
        return lambda _: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    # --- weights --------------------------------------------------------------------------------

    def _linear(self, outputs: int, inputs: int, format: WeightFormat) -> None:
        weights = [self._affine(outputs, inputs, format) for _ in range(self._sizes.copies)]
        plain = [self._affine(outputs, inputs, None) for _ in range(self._sizes.copies)]
        count = self._sizes.copies
        held = weights[0].quantized
        assert held is not None
        for rows in self._sizes.rows:
            x = torch.randn(rows, inputs).to(self._device, self._dtype)
            variants: dict[str, Call] = {
                OURS: lambda i, x=x: linear(weights[i % count], x),
                TORCH: lambda i, x=x: F.linear(x, plain[i % count].weight),
            }
            name = f"linear {outputs} x {inputs}, weights {format}, {rows} rows"
            self._read(name, variants, held.size_bytes)

    def _dequantize(self, outputs: int, inputs: int, format: WeightFormat) -> None:
        weights = [self._affine(outputs, inputs, format) for _ in range(self._sizes.copies)]
        count, unit, dtype = self._sizes.copies, unit_of(self._device), self._dtype
        held = weights[0].quantized
        assert held is not None

        def ours(index: int) -> Tensor:
            weight = weights[index % count].quantized
            assert weight is not None
            if unit is None:
                return weight.dequantize().to(dtype)
            from tandem.kernels.triton_products import dequantize

            return dequantize(weight, dtype)

        moved = held.size_bytes + outputs * inputs * dtype.itemsize
        self._read(f"dequantize {outputs} x {inputs}, {format}", {OURS: ours}, moved, target=0.8)

    def _affine(self, outputs: int, inputs: int, format: WeightFormat | None) -> Affine:
        weight = torch.randn(outputs, inputs, device=self._device) / inputs**0.5
        if format is None:
            return Affine(weight.to(self._dtype))
        held = narrow_weight(weight, format) if format.floats else quantize(weight, format)
        return Affine(held.q, None, held)

    def _experts(self, sizes: MixtureSizes, format: WeightFormat | None) -> None:
        """A layer's experts at once, beside one after another, by the weights of those chosen."""
        device, unit = self._device, unit_of(self._device)
        weights: Modules = {}
        for number in range(sizes.count):
            weights[f"experts.{number}.gate_up"] = self._affine(
                2 * sizes.inner, sizes.hidden, format
            )
            weights[f"experts.{number}.down"] = self._affine(sizes.hidden, sizes.inner, format)
        steps = ExpertSteps(
            ExpertSpec(sizes.count, sizes.per_token, sizes.inner), partial(gated, "silu")
        )
        first = [weights[f"experts.0.{name}"] for name in ("gate_up", "down")]
        each = sum(a.quantized.size_bytes if a.quantized else a.weight.nbytes for a in first)
        for rows in sizes.rows:
            x = torch.randn(rows, sizes.hidden).to(device, self._dtype)
            state = LayerState(torch.zeros(rows, dtype=torch.int64, device=device), x)
            scores = torch.rand(rows, sizes.count, device=device)
            state.x, (state.expert_weights, state.experts) = x, scores.topk(sizes.per_token)
            variants: dict[str, Call] = {
                OURS: lambda _, state=state: steps.total(weights, state),
                TORCH: lambda _, state=state: steps.total_in_turn(weights, state),
            }
            chosen = len(state.experts.unique())
            name = f"experts, {chosen} of {sizes.count}, weights {format or self._scale.dtype}"
            # one after another they ask which are chosen; so do ours where that is faster
            together = unit is not None and steps.grouped_total(weights, state, unit) is not None
            launched = (TORCH,) if together else (OURS, TORCH)
            self._read(f"{name}, {rows} rows", variants, chosen * each, launched=launched)

    # --- sampling -------------------------------------------------------------------------------

    def _sampling(self, kind: str, rows: int) -> None:
        """Integer weights over the whole vocabulary, beside torch's floats, which depend on the
        batch; by one reading of the logits.
        """
        temperature, top_p = _DRAWS[kind]
        logits = torch.randn(rows, self._spec.vocab_size, device=self._device) * 3
        asked = _sampled_rows(rows, temperature, top_p)
        variants: dict[str, Call] = {
            OURS: lambda _: sample(logits, asked),
            TORCH: lambda _: _draw_floats(logits, temperature, top_p),
        }
        name = f"sampling, {kind}, {rows} x {logits.shape[1]}"
        self._read(name, variants, logits.nbytes, launched=variants)

    # --- samples --------------------------------------------------------------------------------

    def _read(
        self,
        case: str,
        variants: Mapping[str, Call],
        size: float,
        target: float = 1.0,
        launched: Collection[str] = (),
    ) -> None:
        """Rates of reading `size` bytes beside the memory's, which is copied in turns with them."""
        copied = 2 * self._source.nbytes
        copy: Call = lambda _: self._target.copy_(self._source)  # noqa: E731
        samples = self._samples({**variants, COPY: copy}, launched)
        rates = {
            name: [(copied if name == COPY else size) / s / 1e9 for s in times]
            for name, times in samples.items()
        }
        bound = float(np.median(rates[COPY]))
        rows = [row_of_samples(case, OURS, "bandwidth", rates[OURS], "GB/s", target * bound)]
        if TORCH in samples:
            rows += _over_torch(case, paired_ratio(samples[TORCH], samples[OURS]))
        self._found.add(*rows)

    def _samples(
        self, variants: Mapping[str, Call], launched: Collection[str] = ()
    ) -> dict[str, Sequence[float]]:
        """Seconds per call, in turns; each sample is as many calls as make it long enough, which
        are recorded and submitted at once: Python takes longer to launch a kernel than it runs.

        Args:
            launched: of the variants, those that cannot be recorded, since they ask the device.
        """
        runs = {name: self._run_of(call, name in launched) for name, call in variants.items()}
        samples: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(self._sizes.rounds):
            for name, (run, count) in runs.items():
                samples[name].append(self._seconds(run) / count)
        return {name: tuple(times) for name, times in samples.items()}

    def _run_of(self, call: Call, is_launched: bool) -> tuple[Callable[[], object], int]:
        """What runs several calls, and how many."""

        def run_of(count: int) -> Callable[[], object]:
            def run() -> None:
                with torch.inference_mode():
                    for number in range(count):
                        call(number)

            return run if is_launched else self._probed.recorded(run)

        few = max(_FEW_CALLS, self._sizes.copies)
        run = run_of(few)
        self._seconds(run)  # compiles
        once_s = self._seconds(run) / few
        count = max(few, min(_MOST_CALLS, round(_LEAST_S / once_s) // few * few))
        return (run, few) if count == few else (run_of(count), count)

    def _seconds(self, run: Callable[[], object]) -> float:
        def ended() -> None:
            run()
            self._probed.synchronize()

        self._probed.synchronize()
        return timed(ended)


def _sampled_rows(rows: int, temperature: float, top_p: float) -> SamplingRows:
    none = np.zeros((0, 2), dtype=np.int64)
    return SamplingRows(
        logits_index=np.arange(rows, dtype=np.int64),
        rows=np.arange(rows, dtype=np.int32),
        greedy=temperature == 0,
        temperature=np.full(rows, temperature, dtype=np.float32),
        top_p=np.full(rows, top_p, dtype=np.float32),
        min_p=np.zeros(rows, dtype=np.float32),
        top_k=np.zeros(rows, dtype=np.int32),
        numbers=CounterNumbers(np.arange(rows, dtype=np.uint64), np.zeros(rows, dtype=np.int64)),
        banned=none,
        bias=none,
        bias_values=np.zeros(0, dtype=np.float32),
        penalties=None,
        logprobs=None,
    )


def _draw_floats(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """As it is usually done: a sort, a sum of floats, and torch's own draw."""
    if temperature == 0:
        return logits.argmax(-1)
    shares = torch.softmax(logits / temperature, -1)
    if top_p == 1:
        return shares.multinomial(1)
    falling, ids = shares.sort(-1, descending=True)
    falling[falling.cumsum(-1) - falling >= top_p] = 0
    return ids.gather(-1, falling.multinomial(1))


def narrow_weight(weight: Tensor, format: WeightFormat) -> QuantizedWeight:
    """As a checkpoint of FP8 by channel has it."""
    scales = weight.abs().amax(1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
    codes = (weight / scales).to(torch.float8_e4m3fn)
    return ScaledFloats(codes, scales, weight.shape[1]).packed(format)


def _over_torch(case: str, paired: PairedRatio) -> Iterator[BenchRow]:
    yield BenchRow(
        case, OURS, "speed over torch best, paired", paired.median, "", None, paired.spread
    )
