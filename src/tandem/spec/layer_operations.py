"""What one decoder layer computes, as an ordered list of operations with costs (contract 1).

Names follow Park and Egger: `LN.0 Q K V Scores Softmax WV Output LN.1 FC.*`, with `QNorm`, `KNorm`,
`Rope`, `LN.Output` and `LN.FC` where the architecture has them; a mixture of experts has `Router
Experts.*` in place of `FC.*`. Layers with and without such a mixture have different lists; where
others differ, in window and rotation, the specification says how.
"""

from collections.abc import Iterator
from dataclasses import replace

from tandem.spec.model import ExpertSpec, ModelSpec
from tandem.spec.operations import MLP_NORM, Buffer, Operation, WeightShape


def layer_operations(spec: ModelSpec, layer: int = 0) -> tuple[Operation, ...]:
    """The operations of one layer of `spec`, in order of execution."""
    experts = spec.routed_experts(layer)
    mlp = _mlp(spec) if experts is None else _routed_mlp(spec, experts)
    return (*_projections(spec), *_attention(spec), *_attention_end(spec), *mlp)


def _projections(spec: ModelSpec) -> Iterator[Operation]:
    residual, x = Buffer("residual", spec.hidden_size), Buffer("x", spec.hidden_size)
    q, k, v = Buffer("q", spec.q_size), Buffer("k", spec.kv_size), Buffer("v", spec.kv_size)
    yield _norm(spec, "LN.0", "attention_norm", residual, x)
    yield _linear("Q", "q", x, q, spec.qkv_bias)
    yield _linear("K", "k", x, k, spec.qkv_bias, kv_write_width=spec.kv_size)
    yield _linear("V", "v", x, v, spec.qkv_bias, kv_write_width=spec.kv_size)
    if spec.qk_norm:
        weight = (spec.head_dim,)
        yield _head_norm("QNorm", WeightShape("q_norm.weight", weight), q)
        yield _head_norm("KNorm", WeightShape("k_norm.weight", weight), k)
    if spec.rope is not None:
        flops = 3 * (q.width + k.width)
        yield Operation("Rope", "rope", (), (q, k), (q, k), flops_per_token=flops)


def _attention(spec: ModelSpec) -> Iterator[Operation]:
    # Scores and probabilities grow with the context and stay inside the kernel: no buffers.
    q, attention = Buffer("q", spec.q_size), Buffer("attention", spec.q_size)
    k, v = Buffer("k", spec.kv_size), Buffer("v", spec.kv_size)
    dots = 2 * spec.q_size
    yield Operation(
        "Scores", "scores", (), (q, k), (), 0, dots + spec.num_heads, kv_read_width=spec.kv_size
    )
    yield Operation("Softmax", "softmax", (), (), (), 0, 4 * spec.num_heads)
    yield Operation(
        "WV", "weighted_sum", (), (v,), (attention,), 0, dots, kv_read_width=spec.kv_size
    )


def _attention_end(spec: ModelSpec) -> Iterator[Operation]:
    residual, x = Buffer("residual", spec.hidden_size), Buffer("x", spec.hidden_size)
    attention = Buffer("attention", spec.q_size)
    # A branch is added to the residual by its last product, or by the norm after it.
    end = x if spec.post_norms else residual
    yield _linear("Output", "output", attention, end, spec.output_bias)
    if spec.post_norms:
        yield _post_norm(spec, "LN.Output", "post_attention_norm", x, residual)


def _mlp(spec: ModelSpec) -> Iterator[Operation]:
    residual, x = Buffer("residual", spec.hidden_size), Buffer("x", spec.hidden_size)
    mlp = Buffer("mlp", spec.intermediate_size)
    end = x if spec.post_norms else residual
    yield _norm(spec, MLP_NORM, "mlp_norm", residual, x)
    if spec.gated:
        gate, up = Buffer("gate", spec.intermediate_size), Buffer("up", spec.intermediate_size)
        yield _linear("FC.gate", "gate", x, gate, spec.mlp_bias)
        yield _linear("FC.up", "up", x, up, spec.mlp_bias)
        yield Operation("FC.act", "activation", (), (gate, up), (mlp,), 5 * mlp.width)
        yield _linear("FC.down", "down", mlp, end, spec.mlp_bias)
    else:
        yield _linear("FC.0", "fc0", x, mlp, spec.mlp_bias)
        yield Operation("FC.act", "activation", (), (mlp,), (mlp,), 4 * mlp.width)
        yield _linear("FC.1", "fc1", mlp, end, spec.mlp_bias)
    if spec.post_norms:
        yield _post_norm(spec, "LN.FC", "post_mlp_norm", x, residual)


def _routed_mlp(spec: ModelSpec, experts: ExpertSpec) -> Iterator[Operation]:
    residual, x = Buffer("residual", spec.hidden_size), Buffer("x", spec.hidden_size)
    per_token, width = experts.per_token, experts.per_token * experts.intermediate_size
    chosen, shares = Buffer("experts", per_token), Buffer("expert_weights", per_token)
    gate, up, mlp = Buffer("gate", width), Buffer("up", width), Buffer("mlp", width)
    yield _norm(spec, MLP_NORM, "mlp_norm", residual, x)
    router = WeightShape("router.weight", (experts.count, spec.hidden_size))
    flops = experts.count * (2 * spec.hidden_size + 5)
    yield Operation("Router", "router", (router,), (x,), (chosen, shares), flops)
    flops = 2 * width * spec.hidden_size
    for name, target in (("gate", gate), ("up", up)):
        weights = _expert_weights(experts, name, (experts.intermediate_size, spec.hidden_size))
        yield Operation(
            f"Experts.{name}", "expert_linear", weights, (x, chosen), (target,), flops,
            experts=experts,
        )  # fmt: skip
    yield Operation("Experts.act", "activation", (), (gate, up), (mlp,), 5 * width)
    weights = _expert_weights(experts, "down", (spec.hidden_size, experts.intermediate_size))
    flops += 2 * per_token * spec.hidden_size  # weighted, and added to the residual
    yield Operation(
        "Experts.down", "expert_linear", weights, (mlp, chosen, shares, residual), (residual,),
        flops, experts=experts,
    )  # fmt: skip


def _expert_weights(
    experts: ExpertSpec, name: str, shape: tuple[int, int]
) -> tuple[WeightShape, ...]:
    return tuple(WeightShape(f"experts.{i}.{name}.weight", shape) for i in range(experts.count))


def _norm(spec: ModelSpec, name: str, weight: str, source: Buffer, target: Buffer) -> Operation:
    weights = norm_weights(spec, weight)
    flops_per_element = 4 if spec.norm == "rms" else 7
    return Operation(
        name, "norm", weights, (source,), (target,), flops_per_element * spec.hidden_size
    )


def _post_norm(
    spec: ModelSpec, name: str, weight: str, source: Buffer, residual: Buffer
) -> Operation:
    norm = _norm(spec, name, weight, source, residual)
    flops = norm.flops_per_token + residual.width
    return replace(norm, reads=(source, residual), flops_per_token=flops)


def norm_weights(spec: ModelSpec, name: str) -> tuple[WeightShape, ...]:
    """Weights of a norm over the hidden size: a weight, and a bias if it is a layer norm."""
    shape = (spec.hidden_size,)
    parts = ("weight",) if spec.norm == "rms" else ("weight", "bias")
    return tuple(WeightShape(f"{name}.{part}", shape) for part in parts)


def _head_norm(name: str, weight: WeightShape, buffer: Buffer) -> Operation:
    return Operation(name, "head_norm", (weight,), (buffer,), (buffer,), 4 * buffer.width)


def _linear(
    name: str, weight: str, source: Buffer, target: Buffer, bias: bool, kv_write_width: int = 0
) -> Operation:
    weights = [WeightShape(f"{weight}.weight", (target.width, source.width))]
    if bias:
        weights.append(WeightShape(f"{weight}.bias", (target.width,)))
    adds_to_residual = target.name == "residual"
    reads = (source, target) if adds_to_residual else (source,)
    flops = target.width * (2 * source.width + bias + adds_to_residual)
    return Operation(
        name, "linear", tuple(weights), reads, (target,), flops, kv_write_width=kv_write_width
    )
