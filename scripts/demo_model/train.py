"""Train the demo model and write it in Hugging Face's layout.

The corpus comes from corpus.py, the tokenizer (in the output directory) from tokenizer.py.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from model import SHORT_LENGTH, Llama, ModelConfig, TiedLoss
from optim import Muon
from render import BOS, END, EOS, PAD, chat_documents, plain, plain_documents
from tokenizer import load_units, write_json

IGNORED = -1


@dataclass
class Progress:
    """How much of the budget is used: by steps, or by minutes when those run out first."""

    steps: int
    minutes: float
    step: int = 0
    started: float = field(default_factory=time.monotonic)

    def fraction(self) -> float:
        """Return the used share of the budget."""
        return min(1.0, max(self.step / self.steps, self.elapsed() / self.minutes))

    def elapsed(self) -> float:
        """Return the minutes since the start."""
        return (time.monotonic() - self.started) / 60

    def rate(self, warmup: float = 0.02, decay_from: float = 0.3) -> float:
        """Return the learning rate's factor: linear warm-up, constant, linear decay to zero."""
        used = self.fraction()
        if used < warmup:
            return max(0.05, used / warmup)
        return min(1.0, (1 - used) / (1 - decay_from))


class Stream:
    """Packs freshly rendered documents into rows of tokens, epoch after epoch."""

    def __init__(self, args: argparse.Namespace, tokenizer: Tokenizer) -> None:
        self.units = [u for u in load_units(args.corpus) if u.split == "train"]
        self.tokenizer = tokenizer
        self.rng = random.Random(args.seed)
        self.chat_share = args.chat_share
        self.buffer: list[int] = []
        self.pending: list[str] = []
        self.epochs = 0
        self.whole = 0.5

    def batch(self, rows: int, length: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets; a document's first token is not a target."""
        need = rows * (length + 1)
        while len(self.buffer) < need:
            self._fill()
        data = torch.tensor(self.buffer[:need]).view(rows, length + 1)
        del self.buffer[:need]
        targets = data[:, 1:].clone()
        targets[targets == token_id(self.tokenizer, BOS)] = IGNORED
        return data[:, :-1].contiguous(), targets

    def _fill(self) -> None:
        """Tokenise the next documents, rendering a new epoch when none is left."""
        if not self.pending:
            self.pending = [
                *plain_documents(self.units, self.rng, self.whole),
                *chat_documents(self.units, self.rng, self.chat_share),
            ]
            self.rng.shuffle(self.pending)
            self.epochs += 1
        texts, self.pending = self.pending[:400], self.pending[400:]
        for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False):
            self.buffer += encoding.ids


def evaluation_sets(args: argparse.Namespace, tokenizer: Tokenizer) -> dict[str, list[list[int]]]:
    """Return the held-out documents, and as many training documents, as token lists."""
    units = load_units(args.corpus)
    held_out = [u for u in units if u.split == "validation"]
    seen = random.Random(1).sample([u for u in units if u.split == "train"], len(held_out))
    sets = {}
    for name, group in (("val", held_out), ("train", seen)):
        texts = {
            f"{name}_plain": [f"{BOS}{plain(u, True)}{EOS}" for u in group],
            f"{name}_chat": list(chat_documents(group, random.Random(2), 1.0)),
        }
        for key, value in texts.items():
            encoded = tokenizer.encode_batch(value, add_special_tokens=False)
            sets[key] = [e.ids[: args.long_length] for e in encoded]
    return sets


@torch.no_grad()
def evaluate(model: Llama, documents: list[list[int]], exact: bool = False) -> float:
    """Return the mean loss per token of documents that each start a fresh context."""
    model.eval()
    total, count = 0.0, 0
    ordered = sorted(documents, key=len)
    for start in range(0, len(ordered), 8):
        part = ordered[start : start + 8]
        width = max(map(len, part))
        data = torch.tensor([ids + [IGNORED] * (width - len(ids)) for ids in part])
        with torch.autocast("cpu", torch.bfloat16, enabled=not exact):
            logits = model(data[:, :-1].clamp(min=0)).float()
        targets = data[:, 1:].reshape(-1)
        total += float(
            F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORED, reduction="sum")
        )
        count += int((targets != IGNORED).sum())
    return total / count


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the number of a special token."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"the tokenizer has no {token}")
    return found


def export(model: Llama, out: Path, tokenizer: Tokenizer) -> None:
    """Write config.json, generation_config.json and the bf16 weights, each atomically."""
    bos, eos, pad, end = (token_id(tokenizer, t) for t in (BOS, EOS, PAD, END))
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", model.config.to_hf(bos, eos, pad))
    generation = {"bos_token_id": bos, "eos_token_id": [eos, end], "pad_token_id": pad}
    write_json(out / "generation_config.json", {**generation, "max_new_tokens": 256})
    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    partial = out.parent / ".demo-model.safetensors.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.chmod(0o644)
    os.replace(partial, out / "model.safetensors")


def optimizers(model: Llama, args: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """Return Muon for the layers' matrices and AdamW for the rest."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers" in n]
    norms = [p for p in model.parameters() if p.ndim == 1]
    groups = [
        {"params": [model.model.embed_tokens.weight], "weight_decay": args.embedding_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    return [
        Muon(matrices, lr=args.muon_lr, momentum=0.95, weight_decay=args.weight_decay),
        torch.optim.AdamW(groups, lr=args.adam_lr, betas=(0.9, 0.98), fused=True),
    ]


class Trainer:
    """Runs the steps, the evaluations and the checkpoints of one training run."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(args.seed)
        self.args = args
        self.tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
        self.model = Llama(ModelConfig(), args.dropout)
        if args.initial is not None:
            self.model.load_state_dict(load_file(args.initial))
        self.average = copy.deepcopy(self.model).eval()
        self.stream = Stream(args, self.tokenizer)
        self.sets = evaluation_sets(args, self.tokenizer)
        self.optimizers = optimizers(self.model, args)
        self.base_rates = [[g["lr"] for g in o.param_groups] for o in self.optimizers]
        self.progress = Progress(args.steps, args.minutes)
        self.short_hidden: Callable[[Tensor], Tensor] = (
            torch.compile(self.model.hidden, dynamic=False) if args.compile else self.model.hidden
        )
        self.best = math.inf
        self.seen_tokens = 0

    def run(self) -> None:
        """Train until the budget is used, then evaluate and write the final model."""
        recent: list[float] = []
        next_check = self.args.check_minutes
        for tokens, targets in self._batches():
            recent.append(self._step(tokens, targets))
            if self.progress.step % 20 == 0:
                self._log({"loss": sum(recent) / len(recent)})
                recent = []
            if self.progress.elapsed() >= next_check:
                self._checkpoint()
                next_check = self.progress.elapsed() + self.args.check_minutes
        self._checkpoint(final=True)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of the short length, then of the long length near the end."""
        args = self.args
        while self.progress.fraction() < 1:
            long = self.progress.fraction() >= 1 - args.long_share
            self.stream.whole = 0.8 if long else 0.5
            length = args.long_length if long else args.length
            yield self.stream.batch(args.batch_tokens // length, length)

    def _step(self, tokens: Tensor, targets: Tensor) -> float:
        """Do one optimizer step and update the averaged weights; return the loss."""
        self.model.train()
        rate = self.progress.rate()
        for optimizer, bases in zip(self.optimizers, self.base_rates, strict=True):
            for group, base in zip(optimizer.param_groups, bases, strict=True):
                group["lr"] = base * rate
        short = tokens.shape[1] == SHORT_LENGTH
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.short_hidden(tokens) if short else self.model.hidden(tokens)
        loss = TiedLoss.apply(hidden, self.model.model.embed_tokens.weight, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.progress.step += 1
        self.seen_tokens += tokens.numel()
        keep = min(self.args.average, self.progress.step / (self.progress.step + 20))
        with torch.no_grad():
            for mean, value in zip(self.average.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(value, 1 - keep)
        return loss.item()

    def _checkpoint(self, final: bool = False) -> None:
        """Evaluate the averaged weights; write the model when it is the best, or the last."""
        names = list(self.sets) if final else ["val_plain", "val_chat", "train_plain"]
        losses = {name: evaluate(self.average, self.sets[name], final) for name in names}
        self._log(losses)
        score = losses["val_plain"] + losses["val_chat"]
        if score < self.best or final:
            self.best = min(score, self.best)
            export(self.average, self.args.out, self.tokenizer)

    def _log(self, values: dict[str, float]) -> None:
        """Append one line to the log file and print it."""
        line = {
            "step": self.progress.step,
            "minutes": round(self.progress.elapsed(), 2),
            "fraction": round(self.progress.fraction(), 4),
            "tokens": self.seen_tokens,
            "epoch": self.stream.epochs,
            **{key: round(value, 4) for key, value in values.items()},
        }
        with (self.args.work / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


def parse_args() -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description="Train the demo model.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="holds tokenizer.json already")
    parser.add_argument("--work", type=Path, required=True, help="directory of the log")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--initial", type=Path, help="model.safetensors to continue from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=SHORT_LENGTH)
    parser.add_argument("--long-length", type=int, default=2048)
    parser.add_argument("--long-share", type=float, default=0.15)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--chat-share", type=float, default=0.35)
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=3e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--embedding-decay", type=float, default=0.01)
    parser.add_argument("--average", type=float, default=0.99)
    parser.add_argument("--check-minutes", type=float, default=4.0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def main() -> None:
    """Train with the settings of the command line."""
    args = parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    Trainer(args).run()


if __name__ == "__main__":
    main()
