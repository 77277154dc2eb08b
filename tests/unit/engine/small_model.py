"""A small model, of which tests only take the sizes."""

from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec, RopeSpec
from tandem.spec.precision import Precision

SPEC = ModelSpec(
    architecture="llama",
    vocab_size=1000,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=128,
    max_positions=4096,
    rope=RopeSpec(),
    dtype=DType.BFLOAT16,
)
FLOAT32 = Precision.uniform(DType.FLOAT32)
