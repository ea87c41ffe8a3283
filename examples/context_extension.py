"""Train a small Llama on short texts, and measure how it reads longer ones by each method of
context extension (docs/guides/context.md).

    pip install '.[testbed,hf]'
    python examples/context_extension.py

The text is made here. A document repeats a few sentences of the built-in grammar in random order,
and half of the training sequences hide a passkey in filler. A last model is trained further without
positions, as DroPE needs (Gelberg et al. 2025). This takes some minutes on two cores. So few
steps do not teach the model to find passkeys; `--steps` trains it longer.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
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


def batches(tokenizer: PreTrainedTokenizerFast, size: int) -> Iterator[Tensor]:
    """Yield batches `(size, TRAINED)`: one half text, the other half passkeys."""
    choose = random.Random(1)
    text = documents(seed=1)

    def encode(words: str) -> list[int]:
        return tokenizer(words, add_special_tokens=False)["input_ids"]

    while True:
        rows = []
        while len(rows) < size:
            ids = torch.tensor(encode(next(text)))
            rows += [*ids[: len(ids) // TRAINED * TRAINED].view(-1, TRAINED)][:4]
            seeds = (choose.randrange(10**6, 10**9) for _ in range(4))  # not those of the test
            rows += [passkey(TRAINED, choose.random(), encode, seed)[0] for seed in seeds]
        yield torch.stack(rows[:size])


def train(model: LlamaForCausalLM, data: Iterator[Tensor], steps: int, rate: float) -> None:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.2)
    for step, ids in enumerate(islice(data, steps), start=1):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


def measure(folder: Path, text: Path, methods: str, windows: int) -> None:
    command = ["-m", "shapeshift", "context", folder, "--method", methods, "--text", text]
    options = ["--windows", windows, "--output", folder / "context"]
    subprocess.run([sys.executable, *map(str, command + options)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800, help="with positions; then a third")
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
    model, data = LlamaForCausalLM(config), batches(tokenizer, size=8)
    print(f"{model.num_parameters():,} parameters")
    folders = arguments.folder / "rotary", arguments.folder / "drope"
    train(model, data, arguments.steps, rate=3e-3)
    model.save_pretrained(folders[0])
    use_position(model, "nope")
    train(model, data, arguments.steps // 3, rate=1e-3)
    model.save_pretrained(folders[1])
    text = arguments.folder / "text.txt"
    text.write_text("\n".join(islice(documents(seed=2), 20)), encoding="utf-8")
    for folder, methods in zip(folders, (ALL, ""), strict=True):
        tokenizer.save_pretrained(folder)
        measure(folder, text, methods, arguments.windows)


ALL = "linear,ntk,dynamic,yarn,longrope,llama3,drope"

if __name__ == "__main__":
    main()
