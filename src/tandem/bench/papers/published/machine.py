"""A machine as a paper's engine was told of it, and what this cost model says that it takes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandem.bench.papers.models import MODELS
from tandem.cost.step_prices import StepPrices, TierWork
from tandem.cost.step_rates import step_prices
from tandem.plan.online import OnlinePlan
from tandem.plan.weights import WeightPlacement
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.parameters import kv_bytes_per_token
from tandem.spec.precision import Precision

BLOCK_SIZE = 16  # tokens, NEO's evaluation/configs
MAX_ROWS = 1024  # likewise, of the A10G


@dataclass(frozen=True, slots=True)
class PublishedMachine:
    """All weights resident in float16; whole KV blocks on either side.

    Attributes:
        accelerator, host: by name. model: of `MODELS`.
        host_bytes_per_s: what the host's cores read.
        device_blocks, host_blocks: KV blocks of `BLOCK_SIZE` tokens, of all layers.
        step_tokens: most that an iteration computes.
    """

    accelerator: str
    host: str
    model: str
    host_bytes_per_s: float
    device_blocks: int
    host_blocks: int
    step_tokens: int

    def prices(self) -> StepPrices:
        """What steps take, by the rates that the planner goes by."""
        hardware, model = pair_hardware(self.accelerator, self.host), MODELS[self.model]
        host = replace(hardware.host, memory_bandwidth_bytes_per_s=self.host_bytes_per_s)
        plan = OnlinePlan(
            strategy="gpu-only",
            weights=(WeightPlacement(0, model.num_layers - 1, "resident"),),
            device_blocks=self.device_blocks,
            host_blocks=self.host_blocks,
            block_size=BLOCK_SIZE,
            max_model_len=self.step_tokens,
            max_num_seqs=MAX_ROWS,
            max_num_batched_tokens=self.step_tokens,
        )
        key_bytes = kv_bytes_per_token(model, DType.FLOAT16) / model.num_layers
        precision = Precision.uniform(DType.FLOAT16)
        return step_prices(
            plan, model, precision, replace(hardware, host=host), key_bytes, key_bytes
        )


def kv_blocks(memory_bytes: float, model: str) -> int:
    """KV blocks of all layers that some memory holds."""
    return int(memory_bytes / (BLOCK_SIZE * kv_bytes_per_token(MODELS[model], DType.FLOAT16)))


class LayerTimes:
    """Seconds of one layer, by what an iteration does in it.

    Attributes:
        num_layers: of the model.
    """

    def __init__(self, prices: StepPrices) -> None:
        self._prices = prices
        self._linear_s: dict[int, float] = {}
        self._prompt_s: dict[int, float] = {}
        self.num_layers = prices.num_layers

    def linear_s(self, tokens: int) -> float:
        """Stages outside attention."""
        if tokens not in self._linear_s:
            self._linear_s[tokens] = self._prices.layer.at(tokens)
        return self._linear_s[tokens]

    def prompt_s(self, tokens: int) -> float:
        """Attention of one whole prompt."""
        if tokens not in self._prompt_s:
            work = TierWork(tokens, tokens, tokens * (tokens + 1) / 2)
            self._prompt_s[tokens] = self._prices.device.seconds(work)
        return self._prompt_s[tokens]

    def decode_s(self, contexts: Sequence[int]) -> float:
        """The accelerator's attention of rows that decode."""
        keys = sum(contexts)
        return self._prices.device.seconds(TierWork(len(contexts), keys, keys))

    def host_start_s(self) -> float:
        """What the CPU's attention takes whatever it attends to."""
        return self._prices.host.start_s

    def host_row_s(self, context: int) -> float:
        """The CPU's attention of one more row that decodes."""
        return context * self._prices.host.key_s + self._prices.host.query_s

    def attention_rates(self) -> tuple[float, float]:
        """Keys per second that the accelerator and the CPU attend to: `N_G` and `N_C`."""
        return 1 / self._prices.device.key_s, 1 / self._prices.host.key_s

    def head_s(self, rows: int) -> float:
        """Logits and sampling, once after all layers."""
        return self._prices.head.at(rows)

    def copies_s(self, blocks_out: int, blocks_in: int) -> float:
        """KV blocks over the link, both ways at once."""
        pages = self._prices.pages
        return max(pages.out_s(blocks_out), pages.in_s(blocks_in))
