"""`python -m benchmarks.peers.write_gguf CHECKPOINT FILE`: float16 Llama weights for llama.cpp."""

import json
import sys
from pathlib import Path
from typing import Any

import gguf  # pyright: ignore[reportMissingImports]
from benchmarks.peers.gguf_layout import gguf_name, gguf_tensor
from safetensors.numpy import load_file


def write_gguf(checkpoint: Path, file: Path) -> None:
    """Matrices in float16, norms in float32, as llama.cpp's own conversion does; no vocabulary."""
    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "llama")
    _add_config(writer, config)
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        writer.add_tensor(gguf_name(name), gguf_tensor(name, tensor, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_config(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("no_vocab")


if __name__ == "__main__":
    write_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
