"""What one layer costs a sweep, by the home of its weights; attention is priced apart.

Nothing dearer than programs are: launches on the CPU, and what residuals cost on their way, are
left out.
"""

from dataclasses import dataclass
from functools import cached_property

from tandem.cost.rates import DeviceRates, accelerator_rates, h2d_rates
from tandem.cost.stage import copy_cost, merge_cost, stage_cost
from tandem.plan.weights import SLOTTED, Home
from tandem.planner.question import Question
from tandem.spec.layer_operations import layer_operations
from tandem.spec.operations import Operation, default_stages, split_post
from tandem.spec.parameters import mlp_weights

BOUNDED_HOMES: tuple[Home, ...] = ("resident", "streamed", "cpu", "cpu-mlp", "disk_streamed")
"""Homes that have a price."""


@dataclass(frozen=True, slots=True)
class LayerPrice:
    """One layer in one sweep.

    Attributes:
        chain_s: of its stages, one after the other, wherever they run.
        cpu_s: of that, on the CPU. link_s: of its weights on the link. disk_s: on the disk.
        dram_bytes: of weights, in the host's memory.
    """

    chain_s: float
    cpu_s: float = 0.0
    link_s: float = 0.0
    disk_s: float = 0.0
    dram_bytes: float = 0.0


class LayerPrices:
    """Prices and sizes for one question."""

    def __init__(self, question: Question, layer_bytes: int) -> None:
        self._q, self._dtype = question, question.precision.activations
        self._layer_bytes = layer_bytes
        hardware = question.hardware
        self._device = accelerator_rates(hardware, self._dtype)
        host = hardware.host
        self._host = DeviceRates(host.memory_bandwidth_bytes_per_s, host.flops_per_s, 0.0)
        self._load_s = copy_cost(layer_bytes, h2d_rates(hardware)).total_s
        self._operations = layer_operations(question.model)
        mlp = split_post(self._operations).mlp.of(self._operations)
        self._mlp = tuple(mlp)
        outside = (op for op in self._operations if not op.is_attention)
        self._outside = tuple(outside)
        self._before_mlp = tuple(op for op in self._outside if op not in mlp)
        self._prices: dict[tuple[Home, int], LayerPrice] = {}

    @cached_property
    def _mlp_bytes(self) -> int:
        size = self._q.precision.weights.size_bytes
        weights = mlp_weights(self._q.model)
        return sum(weight.elements * size for weight in weights if weight.is_matrix)

    def device_bytes(self, home: Home) -> int:
        """Of a layer on the accelerator; slots are counted apart."""
        if home == "resident":
            return self._layer_bytes
        return self._layer_bytes - self._mlp_bytes if home == "cpu-mlp" else 0

    def host_bytes(self, home: Home) -> int:
        """Of a layer in the host's memory."""
        if home == "cpu-mlp":
            return self._mlp_bytes
        return self._layer_bytes if home in ("streamed", "cpu") else 0

    def of(self, home: Home, tokens: int) -> LayerPrice:
        """In a sweep of `tokens` tokens."""
        key = (home, tokens)
        if key not in self._prices:
            self._prices[key] = self._price(home, tokens)
        return self._prices[key]

    def _price(self, home: Home, tokens: int) -> LayerPrice:
        if home == "cpu":
            cpu_s = stage_cost(self._outside, tokens, self._dtype, self._host).total_s
            return LayerPrice(cpu_s, cpu_s, dram_bytes=self._read_bytes(self._outside, tokens))
        if home == "cpu-mlp":
            cpu_s = stage_cost(self._mlp, tokens, self._dtype, self._host).total_s
            before = stage_cost(self._before_mlp, tokens, self._dtype, self._device)
            read_bytes = self._read_bytes(self._mlp, tokens)
            return LayerPrice(before.total_s + cpu_s, cpu_s, dram_bytes=read_bytes)
        chain_s = self._on_accelerator_s(tokens)
        if home not in SLOTTED:
            return LayerPrice(chain_s)
        read_bytes, disk_s = 0, 0.0
        if home == "disk_streamed":
            rate = self._q.hardware.host.disk_bytes_per_s
            disk_s = 0.0 if rate is None else self._layer_bytes / rate
            read_bytes = self._layer_bytes
        return LayerPrice(chain_s, 0.0, self._load_s, disk_s, self._layer_bytes + read_bytes)

    def _on_accelerator_s(self, tokens: int) -> float:
        stages = default_stages(self._operations)
        return merge_cost(self._q.model, tokens, self._device).total_s + sum(
            stage_cost(stage.of(self._operations), tokens, self._dtype, self._device).total_s
            for stage in (stages.pre, stages.post)
        )

    def _read_bytes(self, operations: tuple[Operation, ...], tokens: int) -> float:
        elements = sum(op.read_weight_elements(tokens) for op in operations)
        return elements * self._dtype.size_bytes
