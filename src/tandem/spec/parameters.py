"""How many weights a model has and what they weigh, from its facts alone."""

from collections import Counter
from collections.abc import Mapping

from tandem.spec.dtype import DType
from tandem.spec.layer_operations import layer_operations, norm_weights
from tandem.spec.model import ModelSpec
from tandem.spec.operations import WeightShape, default_stages, split_post
from tandem.spec.precision import Precision

# Modules that share an input lie in one tensor, so that one product computes all of them.
FUSED_MODULES: Mapping[str, tuple[str, ...]] = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}


def movable_layer(spec: ModelSpec) -> int:
    """The first of the layers that may be moved: in a model with experts, one that has some."""
    dense = spec.dense_layers
    return next((i for i in range(spec.num_layers) if i not in dense), 0)


def layer_weights(spec: ModelSpec, layer: int = 0) -> tuple[WeightShape, ...]:
    """Every weight of one decoder layer, in order of use."""
    return tuple(weight for op in layer_operations(spec, layer) for weight in op.weights)


def mlp_weights(spec: ModelSpec, layer: int = 0) -> tuple[WeightShape, ...]:
    """Of one layer's weights, those of the MLP or the experts, and of the norm before."""
    operations = layer_operations(spec, layer)
    mlp = split_post(operations).mlp.of(operations)
    return tuple(weight for op in mlp for weight in op.weights)


def projection_weights(spec: ModelSpec, layer: int = 0) -> tuple[WeightShape, ...]:
    """Of one layer's weights, those that are read before attention."""
    operations = layer_operations(spec, layer)
    before = default_stages(operations).pre.of(operations)
    return tuple(weight for op in before for weight in op.weights)


def embedding_weights(spec: ModelSpec) -> tuple[WeightShape, ...]:
    """Token embeddings, and learned position embeddings if there are any."""
    tokens = WeightShape("embedding.weight", (spec.vocab_size, spec.hidden_size))
    if spec.position_offset is None:
        return (tokens,)
    rows = spec.max_positions + spec.position_offset
    return (tokens, WeightShape("position_embedding.weight", (rows, spec.hidden_size)))


def head_weights(spec: ModelSpec) -> tuple[WeightShape, ...]:
    """Final norm, and the output head unless it is tied to the token embeddings."""
    head = WeightShape("head.weight", (spec.vocab_size, spec.hidden_size))
    return norm_weights(spec, "final_norm") + (() if spec.tie_embeddings else (head,))


def layer_parameters(spec: ModelSpec, layer: int = 0) -> int:
    """Number of parameters of one decoder layer."""
    return _elements(layer_weights(spec, layer))


def layer_matrix_parameters(spec: ModelSpec, layer: int = 0) -> int:
    """Of them, those in linear maps: what can be streamed. The rest are norms and biases."""
    return _elements(tuple(weight for weight in layer_weights(spec, layer) if weight.is_matrix))


def layers_parameters(spec: ModelSpec) -> int:
    """Number of parameters of all decoder layers."""
    return sum(count * layer_parameters(spec, layer) for layer, count in _layer_counts(spec))


def layers_matrix_parameters(spec: ModelSpec) -> int:
    """Of them, those in linear maps."""
    return sum(count * layer_matrix_parameters(spec, layer) for layer, count in _layer_counts(spec))


def read_layers_parameters(spec: ModelSpec, tokens: int) -> float:
    """Of them, those that `tokens` tokens need; of experts, the expected number."""
    layers = (layer_operations(spec, layer) for layer in range(spec.num_layers))
    return sum(op.read_weight_elements(tokens) for layer in layers for op in layer)


def embedding_parameters(spec: ModelSpec) -> int:
    """Number of parameters of the embeddings."""
    return _elements(embedding_weights(spec))


def lookup_parameters(spec: ModelSpec) -> int:
    """Of them, those that are only ever looked up, a row for each token; none if the head, which
    is read whole, is the same matrix.
    """
    return 0 if spec.tie_embeddings else spec.vocab_size * spec.hidden_size


def head_parameters(spec: ModelSpec) -> int:
    """Number of parameters after the last layer; a tied head counts as embedding only."""
    return _elements(head_weights(spec))


def num_parameters(spec: ModelSpec) -> int:
    """Number of parameters of the whole model."""
    return embedding_parameters(spec) + layers_parameters(spec) + head_parameters(spec)


def layer_matrix_bytes(spec: ModelSpec, precision: Precision, layer: int = 0) -> int:
    """Bytes of one layer's linear maps, of which some may be quantized."""
    return _matrix_bytes(layer_weights(spec, layer), precision)


def mlp_matrix_bytes(spec: ModelSpec, precision: Precision, layer: int = 0) -> int:
    """Of them, those of the MLP or the experts."""
    return _matrix_bytes(mlp_weights(spec, layer), precision)


def projection_matrix_bytes(spec: ModelSpec, precision: Precision, layer: int = 0) -> int:
    """Of them, those of queries, keys and values."""
    return _matrix_bytes(projection_weights(spec, layer), precision)


def key_value_matrix_bytes(spec: ModelSpec, precision: Precision, layer: int = 0) -> int:
    """Of them, those of keys and values."""
    made_by = ("k.weight", "v.weight")
    found = tuple(w for w in projection_weights(spec, layer) if w.name in made_by)
    return _matrix_bytes(found, precision)


def expert_matrix_bytes(spec: ModelSpec, precision: Precision, layer: int = 0) -> int:
    """Of the experts, those of the first; all are of one size."""
    weights = mlp_weights(spec, layer)
    return _matrix_bytes(tuple(w for w in weights if w.name.startswith("experts.0.")), precision)


def _matrix_bytes(weights: tuple[WeightShape, ...], precision: Precision) -> int:
    size = 0
    for weight in weights:
        if weight.is_matrix:
            format = precision.quantized.get(weight.name.removesuffix(".weight"))
            plain = weight.elements * precision.weights.size_bytes
            size += plain if format is None else format.size_bytes(*weight.shape)
    return size


def weight_bytes(spec: ModelSpec, dtype: DType) -> int:
    """Bytes of all weights in `dtype`."""
    return num_parameters(spec) * dtype.size_bytes


def kv_bytes_per_token(spec: ModelSpec, dtype: DType) -> int:
    """Bytes of keys and values of one token over all layers, in `dtype`."""
    return 2 * spec.num_layers * spec.kv_size * dtype.size_bytes


def seen_keys(spec: ModelSpec, context: float) -> float:
    """Keys that the last of `context` tokens sees, summed over all layers."""
    return sum(min(context, window or context) for window in spec.layer_windows)


def _layer_counts(spec: ModelSpec) -> list[tuple[int, int]]:
    """A layer of each kind, and how many there are; hundreds of experts are counted once."""
    counts = Counter(spec.routed_experts(layer) is None for layer in range(spec.num_layers))
    return [(i, counts[spec.routed_experts(i) is None]) for i in spec.distinct_layers]


def _elements(weights: tuple[WeightShape, ...]) -> int:
    return sum(weight.elements for weight in weights)
