"""What host attention beside an accelerator's sweeps can add (APEX, sections 3.3, 3.4 and 6).

A cohort advances one layer per sweep: its attention of layer `l` joins at the same layer of a later
sweep, so that a token takes as many sweeps as there are layers.
"""

from dataclasses import dataclass

MIN_HOST_ROWS_PER_ACCELERATOR_ROW = (
    8.0  # section 4.2; below it, overheads of threads are not repaid
)

WORTH_CAPTURING = 1.15
"""Ratio to the accelerator alone from which on the gain captured is told."""


def attainable_gain(host_bytes_per_s: float, sweep_s: float, accelerator_kv_bytes: float) -> float:
    """The most that the host can add to the accelerator's decoded tokens: `x = B_c T / KV_gpu`.

    The host reads KV cache for one sweep's time while the accelerator reads its own once. Holds for
    equal mean contexts, the same precision and decode only.

    Args:
        host_bytes_per_s: `B_c`, read rate of the cores that attend.
        sweep_s: `T`, of the accelerator alone.
        accelerator_kv_bytes: KV cache read by one sweep.
    """
    return host_bytes_per_s * sweep_s / accelerator_kv_bytes


def request_gain(token_gain: float, prefill_s: float, decode_s: float) -> float:
    """Gain in requests when only decoding becomes faster.

    Args:
        token_gain: of decoding, such as `attainable_gain`.
        prefill_s, decode_s: a request's share of the accelerator's time, alone.
    """
    return (prefill_s + decode_s) / (prefill_s + decode_s / (1 + token_gain)) - 1


@dataclass(frozen=True, slots=True)
class HostDecode:
    """Rows whose attention the host computes.

    Attributes:
        row_layer_bytes: KV cache of one row in one layer.
        linear_s: `Tl`, one pass over a layer on the accelerator.
    """

    layers: int
    row_layer_bytes: float
    host_bytes_per_s: float
    linear_s: float

    def attention_s(self, rows: int) -> float:
        """One layer's attention of a cohort."""
        return rows * self.row_layer_bytes / self.host_bytes_per_s

    def rows_of_a_sweep(self, sweep_s: float) -> int:
        """The cohort whose attention lasts one sweep, and keeps the host busy."""
        return int(sweep_s * self.host_bytes_per_s / self.row_layer_bytes)

    def rendezvous_token_s(self, rows: int, sweep_s: float) -> float:
        """Time per token of one cohort that only joins; a late one misses whole sweeps."""
        attention_s = self.attention_s(rows)
        sweeps = max(1, -(-attention_s // sweep_s)) if attention_s > 0 else 1
        return self.layers * sweeps * sweep_s

    def interposed_token_s(self, rows: int) -> float:
        """Time per token of two alternating cohorts of `rows` each, with passes of their own."""
        return 2 * self.layers * self.attention_s(rows)

    def interposed_share(self, rows: int) -> float:
        """Share of the accelerator's time that those passes take: `Tl / t`."""
        return self.linear_s / self.attention_s(rows)


def interposed_gain(decode: HostDecode, rows: int, accelerator_tokens_per_s: float) -> float:
    """Gain of two alternating cohorts of `rows` each over the accelerator alone.

    For reference: no plan is made by it. Cohorts that have passes of their own are executed in
    virtual time (`planner/fluid/`), which knows of link, memory and what is busy meanwhile.
    """
    added = 2 * rows / decode.interposed_token_s(rows) / accelerator_tokens_per_s
    return added - decode.interposed_share(rows)


def rendezvous_gain(
    decode: HostDecode, rows: int, sweep_s: float, accelerator_tokens_per_s: float
) -> float:
    """Gain of one cohort that joins sweeps of unchanged length."""
    return rows / decode.rendezvous_token_s(rows, sweep_s) / accelerator_tokens_per_s


def residual_bytes(rows: int, hidden_size: int, element_bytes: int) -> int:
    """Accelerator memory that cohorts in mid-sweep hold."""
    return rows * hidden_size * element_bytes


def switch_s(layers: int, done: int, linear_s: float) -> float:
    """What rows that have done `done` layers add to a pipelined step: `(L - i) Tl`.

    For reference: a change of strategy is not priced by it. Cohorts that are under way when the
    strategy changes go on as they are (`scheduler/`), and `auto` weighs steps as they then are.
    """
    return (layers - done) * linear_s


def wait_saved(devices: int) -> float:
    """Share of the wait between two visits of a layer that `devices` devices in a row save.

    With as many micro-batches in flight; 87.5% for eight, where the paper says 75%.
    """
    return 1 - 1 / devices
