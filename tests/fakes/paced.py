"""A model for the paced emulator, which tests run in virtual time."""

from tandem.spec.model import ModelSpec, RopeSpec

TINY = ModelSpec(
    architecture="llama",
    vocab_size=128,
    hidden_size=64,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=96,
    max_positions=512,
    rope=RopeSpec(),
    eos_token_ids=(0, 7),
)
