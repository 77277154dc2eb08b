"""Write the model card, README.md, and the loss curve of the finished demo model.

Losses are measured with `transformers` in fp32 on the files as committed; the samples are
unedited, the first ones drawn.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from render import END, EOS
from tokenizer import load_units
from train import evaluation_sets

PROMPTS = (
    "The Python standard library",
    "A context manager is",
    "Return a list of",
    "If the file does not exist,",
)
QUESTIONS = (
    "What does `str.split` do?",
    "Explain the `os.path` module.",
    "What is the json module for?",
    "What does the Python documentation say about context managers?",
    "Who are you?",
)


class Subject:
    """The committed model, loaded the way a user would."""

    def __init__(self, path: Path) -> None:
        torch.set_num_threads(1)
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    @torch.no_grad()
    def loss(self, documents: list[list[int]]) -> tuple[float, int]:
        """Return the mean loss per token, and the number of tokens."""
        total, count = 0.0, 0
        for ids in documents:
            logits = self.model(torch.tensor([ids[:-1]])).logits[0]
            total += float(F.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum"))
            count += len(ids) - 1
        return total / count, count

    def continue_text(self, prompt: str, temperature: float) -> str:
        """Return the continuation of a plain prompt."""
        return self._generate(self.tokenizer(prompt).input_ids, temperature)

    def answer(self, question: str, temperature: float) -> str:
        """Return the answer to one question, asked through the chat template."""
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        ids = self.tokenizer(text, add_special_tokens=False).input_ids
        return self._generate(ids, temperature)

    def _generate(self, ids: list[int], temperature: float) -> str:
        """Generate up to 120 tokens, greedily or with seed 0."""
        torch.manual_seed(0)
        settings: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            settings = {"do_sample": True, "temperature": temperature, "top_k": 0}
        tokens = torch.tensor([ids])
        mask = torch.ones_like(tokens)
        out = self.model.generate(tokens, attention_mask=mask, max_new_tokens=120, **settings)
        text = self.tokenizer.decode(out[0][len(ids) :])
        return text.replace(EOS, "").replace(END, "").strip()


def samples(subject: Subject) -> str:
    """Return the samples as Markdown."""
    parts: list[str] = []
    for temperature in (0.0, 0.8):
        parts.append(f"### Temperature {temperature:g}\n")
        shown = [("Prompt", text, subject.continue_text(text, temperature)) for text in PROMPTS]
        shown += [("User", text, subject.answer(text, temperature)) for text in QUESTIONS]
        parts += [f"{who}: **{text}**\n\n{fenced(reply)}\n" for who, text, reply in shown]
    return "\n".join(parts)


def fenced(text: str) -> str:
    """Return `text` as a Markdown code block."""
    return f"```text\n{text}\n```"


def read_log(path: Path) -> list[dict[str, float]]:
    """Read the training log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def plot(log: list[dict[str, float]], long_share: float, path: Path) -> None:
    """Draw training and validation loss against the tokens seen."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), dpi=90)
    curves = {
        "loss": ("training batches (with dropout)", "0.6"),
        "val_plain": ("held out: documentation", "tab:blue"),
        "val_chat": ("held out: chats", "tab:orange"),
        "train_plain": ("training documents", "tab:green"),
    }
    for key, (label, colour) in curves.items():
        points = [(line["tokens"] / 1e6, line[key]) for line in log if key in line]
        marker = "" if key == "loss" else "o"
        axes.plot(*zip(*points, strict=True), label=label, color=colour, marker=marker, ms=3)
    switch = next((line["tokens"] for line in log if line["fraction"] >= 1 - long_share), None)
    if switch is not None:
        axes.axvline(switch / 1e6, color="0.8", ls="--", lw=1, label="contexts of 2048 from here")
    axes.set(xlabel="million tokens seen", ylabel="loss (nats per token)", title="Demo model")
    axes.set_ylim(top=7.0)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


def loss_table(subject: Subject, sets: dict[str, list[list[int]]]) -> str:
    """Return the table of final losses as Markdown."""
    labels = {
        "val_plain": "held-out documentation",
        "val_chat": "held-out chats",
        "train_plain": "training documentation (a sample of equal number)",
        "train_chat": "training chats (a sample)",
    }
    rows = ["| text | tokens | loss (nats/token) | perplexity |", "| --- | ---: | ---: | ---: |"]
    for key, label in labels.items():
        loss, count = subject.loss(sets[key])
        rows.append(f"| {label} | {count} | {loss:.3f} | {math.exp(loss):.1f} |")
    return "\n".join(rows)


def architecture(model: Any) -> str:
    """Return the table of the model's shape as Markdown."""
    config = model.config
    rows = {
        "architecture": "Llama (`LlamaForCausalLM`), pre-norm RMSNorm, SwiGLU, rotary positions",
        "parameters": f"{sum(p.numel() for p in model.parameters()):,} (embeddings tied)",
        "layers": config.num_hidden_layers,
        "hidden size / feed-forward": f"{config.hidden_size} / {config.intermediate_size}",
        "query heads / key-value heads": (
            f"{config.num_attention_heads} / {config.num_key_value_heads}, of {config.head_dim}"
        ),
        "context": f"{config.max_position_embeddings} tokens, rope theta 10000",
        "vocabulary": f"{config.vocab_size}, byte-level BPE trained on the same text",
        "weights": "bfloat16 in the file; evaluated in float32",
    }
    lines = ["| | |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {key} | {value} |" for key, value in rows.items())])


def card(args: argparse.Namespace) -> str:
    """Return the whole model card."""
    subject = Subject(args.model)
    sets = evaluation_sets(args, Tokenizer.from_file(str(args.model / "tokenizer.json")))
    log = read_log(args.log)
    plot(log, args.long_share, args.model / "loss_curve.png")
    units = load_units(args.corpus)
    characters = sum(len(unit.text) for unit in units)
    template = (Path(__file__).parent / "model_card.md.in").read_text(encoding="utf-8")
    values = {
        "architecture": architecture(subject.model),
        "losses": loss_table(subject, sets),
        "samples": samples(subject),
        "python": args.python_version,
        "units": f"{len(units):,}",
        "held_out": f"{sum(unit.split == 'validation' for unit in units):,}",
        "characters": f"{characters / 1e6:.2f}",
        "steps": f"{int(log[-1]['step']):,}",
        "tokens": f"{log[-1]['tokens'] / 1e6:.1f}",
        "command": args.command,
        "minutes": f"{log[-1]['minutes']:.0f}",
    }
    for key, value in values.items():
        template = template.replace(f"@{key}@", value)
    return template


def main() -> None:
    """Write the model card and the curve."""
    parser = argparse.ArgumentParser(description="Write the demo model's card.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--long-length", type=int, default=2048)
    parser.add_argument("--long-share", type=float, default=0.15)
    parser.add_argument("--command", required=True, help="the training command, to be quoted")
    parser.add_argument("--python-version", default=platform.python_version())
    args = parser.parse_args()
    (args.model / "README.md").write_text(card(args), encoding="utf-8")


if __name__ == "__main__":
    main()
