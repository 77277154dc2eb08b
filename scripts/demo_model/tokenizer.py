"""Train the byte-level BPE tokenizer and write the tokenizer files of the model directory."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from corpus import Unit
from render import BOS, EOS, PAD, SPECIAL_TOKENS, chat_documents, plain

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] | trim + '<|end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def load_units(path: Path) -> list[Unit]:
    """Read the corpus written by corpus.py."""
    return [Unit(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def train(units: list[Unit], vocab_size: int) -> Tokenizer:
    """Train byte-level BPE on the training split; encoding adds the bos token by itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(units), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A",
        pair=f"{BOS} $A {BOS}:1 $B:1",
        special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
    )
    return tokenizer


def training_text(units: list[Unit]) -> list[str]:
    """Return the text the merges are learned from: the training units and some questions."""
    training = [unit for unit in units if unit.split == "train"]
    texts = [plain(unit, True) for unit in training]
    for chat in chat_documents(training, random.Random(0), 0.2):
        for token in SPECIAL_TOKENS:
            chat = chat.replace(token, "")
        texts.append(chat)
    return texts


def write_config(out: Path) -> None:
    """Write the files that tell `transformers` about the tokenizer and the chat form."""
    special = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    config = {
        **special,
        "additional_special_tokens": [t for t in SPECIAL_TOKENS if t not in special.values()],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": CHAT_TEMPLATE,
    }
    extra = {key: config[key] for key in ("additional_special_tokens",)}
    write_json(out / "tokenizer_config.json", config)
    write_json(out / "special_tokens_map.json", {**special, **extra})


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Train and write the tokenizer."""
    parser = argparse.ArgumentParser(description="Train the demo model's tokenizer.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocab-size", type=int, default=4096)
    args = parser.parse_args()
    units = load_units(args.corpus)
    tokenizer = train(units, args.vocab_size)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(args.out / "tokenizer.json"))
    write_config(args.out)
    text = "\n".join(training_text(units))
    count = len(tokenizer.encode(text, add_special_tokens=False).ids)
    print(f"vocabulary {tokenizer.get_vocab_size()}, {len(text) / count:.2f} characters per token")


if __name__ == "__main__":
    main()
