"""Train a small Llama on short texts, and measure how it reads longer ones by each method of
context extension (docs/guides/context.md).

    pip install '.[testbed,hf]'
    python examples/context_extension.py

The text is made here: a document repeats a few sentences of the built-in grammar in random order.
The model learns to predict them, and to find passkeys, of which only the answer counts. A last
model is trained further without positions, as DroPE needs (Gelberg et al. 2025).
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from math import cos, pi
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Digits, Punctuation, Sequence, Whitespace
from tokenizers.trainers import WordLevelTrainer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from shapeshift import use_position
from shapeshift.check.context import FILLER, QUESTION, TASK, passkey
from shapeshift.data.grammar import generate

TRAINED = 128
"""Tokens of a training sequence."""


def documents(seed: int) -> Iterator[str]:
    """Yield documents of 200 sentences, of which 8 are different."""
    choose = random.Random(seed)
    sentences = (english for english, _ in generate(10**9, seed=seed, max_words=14))
    while True:
        yield " ".join(choose.choices([*islice(sentences, 8)], k=200))


def train_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are words, marks and digits."""
    words = Tokenizer(WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = Sequence([Whitespace(), Punctuation(), Digits(individual_digits=True)])
    fact = f"{TASK}{FILLER} The pass key is 0123456789. Remember it.{QUESTION}"
    trainer = WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)
    words.train_from_iterator([fact, *islice(documents(seed=1), 300)], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")


def texts(tokenizer: PreTrainedTokenizerFast) -> Iterator[Tensor]:
    """Yield ids `(4, TRAINED)` of documents."""
    for document in documents(seed=1):
        ids = torch.tensor(tokenizer(document, add_special_tokens=False)["input_ids"])
        yield from ids[: len(ids) // (4 * TRAINED) * 4 * TRAINED].view(-1, 4, TRAINED)


def passkeys(tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ids `(16, TRAINED)` with a passkey each, and labels, which are the answers alone."""
    choose = random.Random(1)

    def encode(words: str) -> list[int]:
        return tokenizer(words, add_special_tokens=False)["input_ids"]

    while True:
        seeds = [choose.randrange(10**6, 10**9) for _ in range(16)]  # not those of the test
        rows = [passkey(TRAINED, choose.random(), encode, seed) for seed in seeds]
        ids = torch.stack([row for row, _ in rows])
        labels = ids.clone()
        labels[:, : -rows[0][1]] = -100
        yield ids, labels


def train(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int, rate: float
) -> None:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(10 * step / steps, 0.5 + 0.5 * cos(pi * step / steps))
    )
    data = zip(range(1, steps + 1), texts(tokenizer), passkeys(tokenizer), strict=False)
    for step, ids, (keys, answers) in data:
        losses = model(input_ids=ids, labels=ids).loss, model(input_ids=keys, labels=answers).loss
        optimizer.zero_grad()
        sum(losses).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(
                f"step {step}: loss of text {losses[0]:.3f}, of passkeys {losses[1]:.3f}",
                flush=True,
            )


def measure(folder: Path, text: Path, methods: str, windows: int) -> None:
    command = ["-m", "shapeshift", "context", folder, "--method", methods, "--text", text]
    options = ["--windows", windows, "--output", folder / "context"]
    subprocess.run([sys.executable, *map(str, command + options)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000, help="with positions; then a third")
    parser.add_argument("--windows", type=int, default=32, help="of text to measure")
    parser.add_argument("--folder", type=Path, default=Path("context-extension"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = train_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=384, max_position_embeddings=TRAINED, bos_token_id=None,
        eos_token_id=None, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    print(f"{model.num_parameters():,} parameters")
    folders = arguments.folder / "rotary", arguments.folder / "drope"
    train(model, tokenizer, arguments.steps, rate=3e-3)
    model.save_pretrained(folders[0])
    use_position(model, "nope")
    train(model, tokenizer, arguments.steps // 3 + 1, rate=1e-3)
    model.save_pretrained(folders[1])
    text = arguments.folder / "text.txt"
    text.write_text("\n".join(islice(documents(seed=2), 20)), encoding="utf-8")
    for folder, methods in zip(folders, (ALL, ""), strict=True):
        tokenizer.save_pretrained(folder)
        measure(folder, text, methods, arguments.windows)


ALL = "linear,ntk,dynamic,yarn,longrope,llama3,drope"

if __name__ == "__main__":
    main()
