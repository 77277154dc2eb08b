"""Offline policies: restrictions of the search that published systems amount to.

All run on the same kernels, programs and predictions, so that a comparison compares policies.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tandem.plan.block_order import ORDERS, BlockOrder
from tandem.plan.offline import QUANTIZED_LAYERS, QuantizedLayers
from tandem.planner.offline.candidate import BlockCandidate, KVInFewBits
from tandem.spec.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OfflinePolicy:
    """Which candidates are allowed.

    Attributes:
        all_streamed: no layer's weights stay on the accelerator.
        resident: KV may lie on the accelerator. streams, attends: that of others may be brought
            there, or attended on the CPU. mixes: some this way and some that, in any number, or
            in `parts` equal ones.
        recomputes: a prefix of streamed KV may be recomputed.
        apart: of layers that do not fit, only the MLPs may be elsewhere. computes: these may be
            left to the CPU while tokens are decoded. computes_layers: so may whole layers. divides:
            where one of the two may, columns of every MLP may be instead. cuts: and, where whole
            layers are streamed, attention's maps of all of them.
        orders: batches may go through layers in: each by itself, several at a time, or either way.
        layers: which may be quantized, where the user allows it; kv: which of KV may be.
        source: where the policy comes from.
    """

    name: str
    summary: str
    source: str
    all_streamed: bool = False
    resident: bool = True
    streams: bool = True
    attends: bool = True
    mixes: bool = True
    recomputes: bool = False
    apart: bool = False
    computes: bool = False
    computes_layers: bool = False
    divides: bool = False
    cuts: bool = False
    orders: tuple[BlockOrder, ...] = ORDERS
    layers: tuple[QuantizedLayers, ...] = QUANTIZED_LAYERS
    kv: tuple[KVInFewBits, ...] = ("none", "host")
    parts: int | None = None

    @property
    def adapts(self) -> bool:
        """Whether any sequence with its KV on the host may be streamed or attended there."""
        return self.streams and self.attends and self.mixes and self.parts is None

    def shares(self, hosted: int, cpu: float) -> frozenset[int]:
        """Of `hosted` sequences with their KV on the host, numbers next to `cpu` that the CPU may
        attend to.
        """
        if self.parts is None:
            return frozenset((round(cpu),))
        part = hosted / self.parts
        return frozenset(round(part * n) for n in (math.floor(cpu / part), math.ceil(cpu / part)))

    def allows(self, candidate: BlockCandidate, num_layers: int) -> bool:
        """Whether a candidate keeps to the policy."""
        return (
            not (self.all_streamed and candidate.streamed < num_layers)
            and (self.resident or not candidate.resident_rows)
            and (self.streams or not candidate.streamed_rows)
            and (self.attends or not candidate.cpu_rows)
            and (self.mixes or not (candidate.streamed_rows and candidate.cpu_rows))
            and (not candidate.host_rows or self._may_attend(candidate))
            and (self.recomputes or not candidate.recomputed_tokens)
            and (self.apart or not candidate.mlps)
            and (self.lends(mlps=candidate.mlps) or not candidate.lent)
            and (self.may_divide(mlps=candidate.mlps) or not candidate.columns)
            and (self.cuts or not candidate.attention_maps)
            and candidate.order in self.orders
            and candidate.quantized in self.layers
            and candidate.kv_in_few_bits in self.kv
            and not self._names_none(candidate)
        )

    def within(self, orders: tuple[BlockOrder, ...]) -> "OfflinePolicy | None":
        """The same in these orders alone; None: it has none of them."""
        both = tuple(order for order in self.orders if order in orders)
        return replace(self, orders=both) if both else None

    def lends(self, *, mlps: bool) -> bool:
        """Whether MLPs, or whole layers, may be left to the CPU while tokens are decoded."""
        return self.computes if mlps else self.computes_layers

    def may_divide(self, *, mlps: bool) -> bool:
        """Likewise, columns of them."""
        return self.divides and self.lends(mlps=mlps)

    def _names_none(self, candidate: BlockCandidate) -> bool:
        """Whether the type of KV on the accelerator is said of none, while the same candidate
        without is allowed.
        """
        none_there = candidate.device_kv is not None and not candidate.resident_rows
        return none_there and "host" in self.kv

    def _may_attend(self, candidate: BlockCandidate) -> bool:
        return candidate.cpu_rows in self.shares(candidate.host_rows, candidate.cpu_rows)


PARK_EGGER = "park-egger"
_ALL = (
    OfflinePolicy(
        "auto", "the best of all that follows, mixed, and layers, MLPs or parts of them on the CPU",
        "Tandem", recomputes=True, apart=True, computes=True, computes_layers=True, divides=True,
        cuts=True, kv=("none", "host", "all"),
    ),
    OfflinePolicy(
        "zero-inference", "all weights streamed, all KV on the accelerator, one batch",
        "LM-Offload table 3 (wg 0, cg 100)", all_streamed=True, streams=False, attends=False,
        orders=("rows",),
    ),
    OfflinePolicy(
        "zero-inference-stream", "all weights and all KV streamed, one batch",
        "ZeRO-Inference with its KV cache on the host", all_streamed=True, resident=False,
        attends=False, orders=("rows",),
    ),
    OfflinePolicy(
        "flexgen", "shares of weights and KV; KV on the host streamed, or all attended there",
        "FlexGen's zig-zag block schedule, as LM-Offload and KVPR compare with it", mixes=False,
        layers=("none", "all"),
    ),
    OfflinePolicy(
        "kvpr", "all KV streamed, of which a prefix is recomputed from activations",
        "KVPR sections 3.1 to 3.3", resident=False, attends=False, recomputes=True,
        layers=("none",),
    ),
    OfflinePolicy(
        PARK_EGGER,
        "no weights resident; Scores and WV of eighths of the KV, and layers, on the CPU",
        "Park & Egger sections 3.2 and 4.2, with whole layers in place of a part of each",
        all_streamed=True, resident=False, computes_layers=True, layers=("none", "all"), parts=8,
    ),
    OfflinePolicy(
        "lm-offload", "as flexgen; what is few bits is decided per tensor",
        "LM-Offload section 3.2", mixes=False,
    ),
)  # fmt: skip
OFFLINE_POLICIES: Mapping[str, OfflinePolicy] = {policy.name: policy for policy in _ALL}


def policies_within(orders: tuple[BlockOrder, ...]) -> tuple[OfflinePolicy, ...]:
    """All that have one of these orders, in these alone."""
    found = (policy.within(orders) for policy in OFFLINE_POLICIES.values())
    return tuple(policy for policy in found if policy is not None)


def find_offline_policy(name: str) -> OfflinePolicy:
    """The offline policy of that name.

    Raises:
        ConfigError: unknown.
    """
    if name not in OFFLINE_POLICIES:
        raise ConfigError(
            f"no offline policy '{name}'; use one of: {', '.join(OFFLINE_POLICIES)}",
            param="policy",
        )
    return OFFLINE_POLICIES[name]
