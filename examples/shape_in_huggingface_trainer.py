"""SHAPE in Hugging Face's own training loop: a BART and Seq2SeqTrainer, with one line more.

    pip install '.[hf]'
    python examples/shape_in_huggingface_trainer.py

A small BART with random weights reads words of which one is a question mark, and writes the word
that follows the mark. It is trained on 2 to 8 words and tested on more. The rows of its position
tables beyond those are never trained, unless SHAPE is there.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    EvalPrediction,
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from shapeshift import shift_positions

BOS, PAD, EOS, MARK, FIRST_WORD, NUM_WORDS = 0, 1, 2, 3, 4, 10
TRAINED_LENGTH = 8


def questions(count: int, shortest: int, longest: int, seed: int) -> list[dict[str, Tensor]]:
    """Return questions of `shortest` to `longest` words, and their answers as labels."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        length = int(torch.randint(shortest, longest + 1, (), generator=generator))
        words = torch.randint(NUM_WORDS, (length,), generator=generator) + FIRST_WORD
        place = int(torch.randint(length - 1, (), generator=generator))
        answer = torch.tensor([int(words[place + 1]), EOS])
        words[place] = MARK
        ids = torch.cat((torch.tensor([BOS]), words, torch.tensor([EOS])))
        made.append({"input_ids": ids, "labels": answer})
    return made


def collate(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    ids = pad_sequence([example["input_ids"] for example in examples], True, PAD)
    labels = torch.stack([example["labels"] for example in examples])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Return the percentage of right answers; what was generated begins with the start token."""
    right = prediction.predictions[:, 1] == prediction.label_ids[:, 0]
    return {"accuracy": 100 * float(right.mean())}


def train(max_offset: int, steps: int, folder: str) -> Seq2SeqTrainer:
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=FIRST_WORD + NUM_WORDS, max_position_embeddings=64, d_model=64, init_std=0.1,
        encoder_layers=2, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, dropout=0.0,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    if max_offset:
        shift_positions(model, max_offset)  # <- this is all
    settings: dict[str, Any] = {
        "max_steps": steps, "per_device_train_batch_size": 64, "learning_rate": 2e-3,
        "warmup_steps": steps // 10, "per_device_eval_batch_size": 128,
        "predict_with_generate": True, "generation_max_length": 3, "generation_num_beams": 1,
        "use_cpu": True, "disable_tqdm": True, "report_to": [],
        "logging_strategy": "no", "save_strategy": "no",
    }  # fmt: skip
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(folder, **settings),
        data_collator=collate,
        train_dataset=questions(20_000, 2, TRAINED_LENGTH, seed=0),
        compute_metrics=accuracy,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=500, help="updates of each model")
    parser.add_argument("--max-offset", type=int, default=50, help="K")
    args = parser.parse_args()
    lengths = (4, 8, 12, 16, 24, 32)
    print(f"answered right, %, by number of words (trained on 2 to {TRAINED_LENGTH})")
    print("length    " + "".join(f"{length:>6}" for length in lengths))
    for name, max_offset in (("absolute", 0), ("SHAPE", args.max_offset)):
        with tempfile.TemporaryDirectory() as folder:
            trainer = train(max_offset, args.steps, folder)
            scores = [
                trainer.evaluate(questions(256, length, length, seed=1))["eval_accuracy"]
                for length in lengths
            ]
        print(f"{name:<10}" + "".join(f"{score:6.0f}" for score in scores), flush=True)


if __name__ == "__main__":
    main()
