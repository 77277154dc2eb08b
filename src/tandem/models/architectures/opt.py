"""OPT with its norms before attention and feed-forward (all sizes but 350m)."""

from tandem.models.architecture import Architecture
from tandem.models.config_fields import read_activation, read_dtype, read_heads, refuse_unless
from tandem.models.config_reader import ConfigReader
from tandem.spec.model import ModelSpec


def read_spec(config: ConfigReader) -> ModelSpec:
    """Facts from an OPT `config.json`.

    Raises:
        ModelError: the layout of OPT-350m (projected embeddings, norms after the blocks).
    """
    hidden = config.count("hidden_size")
    refuse_unless(config, "do_layer_norm_before", True, default=True)
    refuse_unless(config, "word_embed_proj_dim", hidden, default=hidden)
    refuse_unless(config, "layer_norm_elementwise_affine", True, default=True)
    refuse_unless(config, "_remove_final_layer_norm", False, default=False)
    heads, kv_heads, head_dim = read_heads(config)
    bias = config.flag("enable_bias", True)
    return ModelSpec(
        architecture="opt",
        vocab_size=config.count("vocab_size"),
        hidden_size=hidden,
        num_layers=config.count("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate_size=config.count("ffn_dim"),
        max_positions=config.count("max_position_embeddings", 2048),
        norm="layer",
        norm_eps=1e-5,  # torch's default; OPT's configuration has no key for it
        activation=read_activation(config, "activation_function", "relu"),
        gated=False,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        position_offset=2,
        tie_embeddings=config.flag("tie_word_embeddings", True),
        dtype=read_dtype(config),
    )


ARCHITECTURE = Architecture(
    name="opt",
    read_spec=read_spec,
    prefix="model.",
    layer_prefix="model.decoder.layers.{layer}.",
    layer_modules={
        "attention_norm": "self_attn_layer_norm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "output": "self_attn.out_proj",
        "mlp_norm": "final_layer_norm",
        "fc0": "fc1",
        "fc1": "fc2",
    },
    outer_modules={
        "embedding": "model.decoder.embed_tokens",
        "position_embedding": "model.decoder.embed_positions",
        "final_norm": "model.decoder.final_layer_norm",
        "head": "lm_head",
    },
)
