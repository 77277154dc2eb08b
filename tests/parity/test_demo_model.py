"""The packaged model, trained and stored in half precision, agrees with transformers."""

import torch
from tests.parity.dense_attention import forward
from transformers import AutoModelForCausalLM

from tandem.models.load import load_model
from tandem.models.resolve import resolve_model
from tandem.spec.dtype import DType


def test_logits_of_the_demo_model_equal_transformers() -> None:
    directory = resolve_model("demo")
    model = load_model(directory, DType.FLOAT32)
    reference = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    generator = torch.Generator().manual_seed(0)
    token_ids = torch.randint(model.spec.vocab_size, (200,), generator=generator)
    with torch.no_grad():
        expected = reference(token_ids[None]).logits[0]
    torch.testing.assert_close(forward(model, token_ids), expected, rtol=0, atol=1e-4)
