"""Types of the compiled extension (`native/binding/module.cpp`)."""

from collections.abc import Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

def isa_names() -> list[str]: ...
def choose_isa(name: str) -> str: ...
def default_num_threads(root: str = "/") -> int: ...
def read_seconds(pool: Pool, array: Tensor) -> float: ...
def spin_round_trips(rounds: int) -> list[int]: ...
def attention(
    pool: Pool,
    plan: AttentionPlan | PrefillPlan,
    q: Tensor,
    pages: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    soft_cap: float,
    isa: str,
    sinks: Tensor | None = None,
) -> Task: ...
def nothing(pool: Pool) -> Task: ...
def append(
    pool: Pool,
    pages: Tensor,
    k: Tensor,
    v: Tensor,
    slots: Tensor,
    code_bits: int = 0,
    block_size: int = 0,
) -> Task: ...
def apply_sinks(pool: Pool, out: Tensor, lse: Tensor, sinks: Tensor) -> Task: ...
def copy_blocks(
    pool: Pool, source: Tensor, source_ids: Tensor, target: Tensor, target_ids: Tensor
) -> Task: ...
def merge(
    pool: Pool,
    out_a: Tensor,
    lse_a: Tensor,
    out_b: Tensor,
    lse_b: Tensor,
    out: Tensor,
    lse: Tensor,
) -> Task: ...
def linear(
    pool: Pool,
    weight: LinearWeight,
    x: Tensor,
    y: Tensor,
    end: LinearEnd,
    activation: Activation,
    isa: str,
    rounds_x: bool = False,
) -> Task: ...
def sweep(
    pool: Pool,
    pages: Tensor,
    plans: Sequence[AttentionPlan | None],
    layer_plans: Sequence[int],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slots: Tensor | None,
    out: Tensor,
    lse: Tensor,
    scale: float,
    soft_cap: float,
    isa: str,
) -> Sweep: ...
def dequantize(pool: Pool, weight: LinearWeight, out: Tensor, isa: str) -> Task: ...

class LinearEnd(Enum):
    STORE = 0
    ADD = 1
    GATED = 2
    ACTIVATE = 3

class Activation(Enum):
    NONE = 0
    SILU = 1
    GELU = 2
    GELU_TANH = 3
    RELU = 4

class LinearWeight:
    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None: ...
    @staticmethod
    def quantized(
        q: Tensor, bits: int, scales: Tensor, zeros: Tensor, bias: Tensor | None = None
    ) -> LinearWeight: ...
    @property
    def outputs(self) -> int: ...
    @property
    def inputs(self) -> int: ...

class Signal:
    def __init__(self, value: int = 0, address: int | None = None) -> None: ...
    @property
    def value(self) -> int: ...
    @property
    def address(self) -> int: ...
    def set(self, value: int) -> None: ...
    def reached(self, value: int) -> bool: ...
    def wait(self, value: int, timeout_s: float | None = None) -> bool: ...

class Pool:
    def __init__(self, num_threads: int = 0, pin: bool = False, spin_us: int = 50) -> None: ...
    @property
    def num_threads(self) -> int: ...
    def resize(self, num_threads: int) -> None: ...

class AttentionPlan:
    def __init__(
        self,
        heads: int,
        kv_heads: int,
        block_size: int,
        head_dim: int,
        query_start: NDArray[np.int32],
        positions: NDArray[np.int32],
        block_table: NDArray[np.int32],
        block_index: NDArray[np.int32] | None,
        token_index: NDArray[np.int64] | None,
        num_threads: int,
        window: int = 0,
        code_bits: int = 0,
    ) -> None: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def total_keys(self) -> int: ...
    @property
    def num_parts(self) -> int: ...

class PrefillPlan:
    def __init__(
        self,
        heads: int,
        kv_heads: int,
        block_size: int,
        head_dim: int,
        query_start: NDArray[np.int32],
        positions: NDArray[np.int32],
        block_table: NDArray[np.int32],
        block_index: NDArray[np.int32] | None,
        token_index: NDArray[np.int64] | None,
        num_threads: int,
        window: int = 0,
        code_bits: int = 0,
    ) -> None: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def total_keys(self) -> int: ...
    @property
    def num_parts(self) -> int: ...

class Task:
    @property
    def done(self) -> bool: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    def submit(
        self,
        after: Sequence[tuple[Signal, int]] = (),
        then: tuple[Signal, int] | None = None,
    ) -> None: ...
    def cancel(self) -> bool: ...
    def run(self) -> None: ...
    def wait(self, timeout_s: float | None = None) -> bool: ...

class Sweep:
    @property
    def spans_ns(self) -> list[tuple[int, int]]: ...
    def submit(
        self,
        down: Signal,
        up: Signal,
        base: int,
        after: Sequence[tuple[Signal, int]] = (),
        then: tuple[Signal, int] | None = None,
    ) -> None: ...
    def cancel(self) -> None: ...
    def wait(self, timeout_s: float | None = None) -> bool: ...

class Norm:
    def __init__(self, weight: Tensor, bias: Tensor | None, epsilon: float) -> None: ...

class Experts:
    def __init__(
        self,
        router: LinearWeight | None,
        ups: Sequence[LinearWeight | None],
        downs: Sequence[LinearWeight | None],
        per_token: int,
        renormalized: bool,
        hits: Tensor,
    ) -> None: ...

class Mlp:
    def __init__(
        self,
        norm: Norm,
        up: LinearWeight | None,
        down: LinearWeight | None,
        post_norm: Norm | None,
        activation: Activation,
        gated: bool,
        int8_activations: bool = False,
        experts: Experts | None = None,
    ) -> None: ...
    def run(
        self,
        pool: Pool,
        isa: str,
        residual: Tensor,
        experts: Tensor | None = None,
        shares: Tensor | None = None,
    ) -> None: ...

class Layer:
    def __init__(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        attention_norm: Norm,
        qkv: LinearWeight,
        query_norm: Norm | None,
        key_norm: Norm | None,
        output: LinearWeight,
        post_attention_norm: Norm | None,
        mlp_norm: Norm,
        up: LinearWeight | None,
        down: LinearWeight | None,
        post_mlp_norm: Norm | None,
        activation: Activation,
        gated: bool,
        int8_activations: bool = False,
        experts: Experts | None = None,
    ) -> None: ...
    def pre(
        self,
        pool: Pool,
        isa: str,
        residual: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        qkv: Tensor,
    ) -> None: ...
    def post(self, pool: Pool, isa: str, attention: Tensor, residual: Tensor) -> None: ...

class WeightReader:
    def __init__(
        self,
        copies: list[list[tuple[int, str]]],
        layers: list[tuple[int, list[tuple[int, int, int, int]]]],
        slots: Tensor,
        num_threads: int,
        piece_bytes: int,
        alignment: int,
    ) -> None: ...
    def acquire(self, layer: int) -> int: ...
    def release(self) -> None: ...
    def stop(self) -> None: ...
    @property
    def bytes_read(self) -> list[int]: ...

class LayerStack:
    def __init__(
        self,
        layers: list[Layer],
        plans: list[int],
        rotations: list[int],
        reader: WeightReader | None = None,
        read: list[int] = ...,
    ) -> None: ...
    @property
    def scratch_token_bytes(self) -> int: ...
    @property
    def scratch_bytes(self) -> int: ...
    def run(
        self,
        pool: Pool,
        isa: str,
        residual: Tensor,
        rotations: list[tuple[Tensor, Tensor]],
        pages: Tensor,
        slots: Tensor,
        plans: list[tuple[AttentionPlan | None, PrefillPlan | None]],
        scale: float,
        soft_cap: float = 0.0,
    ) -> None: ...

def normalize(pool: Pool, norm: Norm, x: Tensor, y: Tensor) -> None: ...
