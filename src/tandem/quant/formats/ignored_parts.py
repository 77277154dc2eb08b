"""Tensors of quantized checkpoints that nothing here needs."""

# What names of tensors end in that quantize activations, queries, keys or values: ours are exact.
IGNORED_PARTS = (
    "input_scale", "input_zero_point", "output_scale", "output_zero_point",
    "q_scale", "q_zero_point", "k_scale", "k_zero_point", "v_scale", "v_zero_point", "kv_scale",
)  # fmt: skip
