"""Train and decode with another toolkit on what `compare.py peers` or `time_to_bleu.py` has saved.

    FOLDER/opennmt/bin/python benchmarks/peer.py opennmt FILE

It runs in an environment that `peers.sh` has made, imports nothing of shapeshift, and prints a line
of JSON. Each model comes from the toolkit's own builder and takes the step of its own trainer, with
its own loss; its own search decodes. Packages that prepare text or draw are replaced by mocks.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from copy import deepcopy
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor

NOT_NEEDED = (
    *("ahocorasick", "fasttext", "huggingface_hub", "lxml", "lxml.etree", "matplotlib"),
    *("matplotlib.backends", "matplotlib.backends.backend_pdf", "matplotlib.figure"),
    *("matplotlib.pyplot", "rapidfuzz", "sacrebleu", "sacrebleu.metrics", "sentencepiece", "spacy"),
    *("subword_nmt", "tokenizers", "torch.utils.tensorboard"),
)
PAD, UNK, BOS, EOS = range(4)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class OpenNMT:
    """Dropout after the activation, too; bf16 is our autocast: it has none on CPUs."""

    def __init__(self, work: SimpleNamespace):
        import onmt
        from onmt.model_builder import build_model
        from onmt.opts import train_opts
        from onmt.trainer import Trainer
        from onmt.utils.loss import LossCompute
        from onmt.utils.parse import ArgumentParser

        self.work, self.statistics = work, onmt.utils.Statistics
        layers, dim, heads, ff = work.shape
        parser = ArgumentParser()
        train_opts(parser)
        given = (
            f"--encoder_type transformer --decoder_type transformer --layers {layers} --heads"
            f" {heads} --hidden_size {dim} --word_vec_size {dim} --transformer_ff {ff}"
            f" --dropout {work.dropout} --attention_dropout 0 --label_smoothing {work.smoothing}"
            f" --optim adam --learning_rate {work.lr} --max_grad_norm 0 --param_init 0"
            " --param_init_glorot --position_encoding --share_embeddings"
            " --share_decoder_embeddings --share_vocab --add_qkvbias --add_ffnbias"
            " --data none --src_vocab none"
        )
        options, _ = parser.parse_known_args(given.split())
        ArgumentParser.update_model_opts(options)
        ArgumentParser.validate_model_opts(options)
        self.vocabs = vocabularies(work.vocabulary)
        self.model = build_model(options, options, self.vocabs, None, -1)
        loss = LossCompute.from_opts(options, self.model, self.vocabs["tgt"])
        optimizer = onmt.utils.optimizers.Optimizer.from_opt(self.model, options)
        self.trainer = Trainer(self.model, loss, loss, None, {}, optimizer, n_gpu=0, gpu_rank=-1)

    def set_rate(self, rate: float) -> None:
        self.trainer.optim._learning_rate = rate

    def prepare(self, source: Tensor, target: Tensor) -> tuple[dict[str, Tensor], int]:
        batch = {"src": source[..., None], "tgt": target[..., None], "srclen": (source > 0).sum(1)}
        return batch, int((target[:, 1:] != PAD).sum())

    def train(self, prepared: tuple[dict[str, Tensor], int]) -> float:
        batch, tokens = prepared
        total, report = self.statistics(), self.statistics()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.work.precision == "bf16"):
            self.trainer._gradient_accumulation([batch], tokens, total, report)
        return total.loss / tokens

    def decode(self, source: Tensor, beam: int) -> Any:
        from onmt.translate import GNMTGlobalScorer
        from onmt.translate.translator import Translator

        least, most = self.work.limits
        scorer = GNMTGlobalScorer(0.0, 0.0, "none", "none")
        limits = {"min_length": least, "max_length": most, "max_length_ratio": 0}
        self.model.eval()
        translator = Translator(
            self.model, self.vocabs, beam_size=beam, global_scorer=scorer, dump_beam="", **limits
        )
        batch = {"src": source[..., None], "srclen": (source > 0).sum(1)}
        with torch.autocast("cpu", torch.bfloat16, enabled=self.work.precision == "bf16"):
            return [best[0] for best in translator.translate_batch(batch, False)["predictions"]]


class Eole:
    """Dropout after the activation, too; bf16 is its own."""

    def __init__(self, work: SimpleNamespace):
        import eole
        from eole.config.run import TrainConfig
        from eole.models.model import get_model_class
        from eole.trainer import Trainer, TrainerConfig
        from eole.utils.loss import LossCompute
        from eole.utils.optimizers import Optimizer

        self.work, self.statistics = work, eole.utils.Statistics
        layers, dim, heads, ff = work.shape
        self.config = TrainConfig(
            data={},
            src_vocab="none",
            share_vocab=True,
            model={
                "architecture": "transformer",
                "layers": layers,
                "hidden_size": dim,
                "heads": heads,
                "transformer_ff": ff,
                "mlp_activation_fn": "relu",
                "position_encoding_type": "SinusoidalInterleaved",
                "add_qkvbias": True,
                "add_ffnbias": True,
                "add_final_linear_bias": True,
                "share_embeddings": True,
                "share_decoder_embeddings": True,
                "generator_bias": False,
                "embeddings": {
                    "word_vec_size": dim,
                    "position_encoding_type": "SinusoidalInterleaved",
                },
            },
            training={
                "dropout": [work.dropout],
                "attention_dropout": [0.0],
                "optim": "adam",
                "label_smoothing": work.smoothing,
                "learning_rate": work.lr,
                "max_grad_norm": 0,
                "param_init_method": "xavier_uniform",
                "compute_dtype": work.precision,
                "log_attention_entropy": False,
            },
        )
        self.vocabs = vocabularies(work.vocabulary)
        settings = self.config.training
        kind = get_model_class(self.config.model)
        self.model = kind.for_training(self.config.model, self.vocabs, settings, device_id=-1)
        loss = LossCompute.from_config(self.config, self.model, self.vocabs)
        optimizer = Optimizer.from_config(self.model, self.config)
        how = TrainerConfig(n_gpu=0, gpu_rank=-1, dropout=[work.dropout], attention_dropout=[0.0])
        self.trainer = Trainer(self.model, loss, loss, None, {}, optimizer, how)

    def set_rate(self, rate: float) -> None:
        self.trainer.optim._learning_rate = rate

    def prepare(self, source: Tensor, target: Tensor) -> tuple[dict[str, Any], int]:
        batch = {"src": source, "tgt": target, "srclen": (source > 0).sum(1)}
        extra = {"images": None, "prefix_len": None, "cid": ["all"], "cid_line_number": [0]}
        return {**batch, **extra}, int((target[:, 1:] != PAD).sum())

    def train(self, prepared: tuple[dict[str, Any], int]) -> float:
        batch, tokens = prepared
        total, report = self.statistics(), self.statistics()
        self.trainer._process_accumulated_batches([batch], tokens, total, report)
        return total.loss / tokens

    def decode(self, source: Tensor, beam: int) -> Any:
        from eole.config.run import PredictConfig
        from eole.predict import GNMTGlobalScorer, Translator

        least, most = self.work.limits
        config = PredictConfig(
            model_path=["none"],
            src="none",
            model=self.config.model,
            beam_size=beam,
            min_length=least,
            max_length=most,
            max_length_ratio=0,
            length_penalty="none",
            compute_dtype=self.work.precision,
        )
        model = deepcopy(self.model).to(DTYPES[self.work.precision])  # training goes on in float32
        model._prepare_for_inference(config)
        scorer = GNMTGlobalScorer.from_config(config)
        translator = Translator(
            model, self.vocabs, config, self.config.model, -1, scorer, report_score=False
        )
        batch = {"src": source, "srclen": (source > 0).sum(1)}
        return [best[0] for best in translator.predict_batch(batch, False)["predictions"]]


class Joey:
    """Dropout after the activation and of attention, too. It caches no keys while it decodes."""

    def __init__(self, work: SimpleNamespace):
        from joeynmt.builders import build_optimizer
        from joeynmt.model import build_model
        from joeynmt.training import TrainManager
        from joeynmt.vocabulary import Vocabulary

        self.work = work
        layers, dim, heads, ff = work.shape
        names = ("unk", "pad", "bos", "eos")  # the order that its vocabulary has
        specials = {f"{name}_id": number for number, name in enumerate(names)}
        specials |= {f"{name}_token": f"<{name}>" for name in names}
        specials |= {"sep_id": None, "sep_token": None, "lang_tags": []}
        tokens = [str(number) for number in range(4, work.vocabulary)]
        vocabulary = Vocabulary(tokens, SimpleNamespace(**specials))
        side = {
            "type": "transformer",
            "num_layers": layers,
            "num_heads": heads,
            "ff_size": ff,
            "hidden_size": dim,
            "dropout": work.dropout,
            "layer_norm": "pre",
            "embeddings": {"embedding_dim": dim, "scale": True, "dropout": work.dropout},
        }
        config = {"encoder": side, "decoder": side, "tied_embeddings": True, "tied_softmax": True}
        self.model = build_model(config, vocabulary, vocabulary)
        self.model.loss_function = ("crossentropy", work.smoothing)
        self.autocast = {"device_type": "cpu", "dtype": torch.bfloat16}
        self.autocast["enabled"] = work.precision == "bf16"
        trainer = object.__new__(TrainManager)  # its constructor opens log files
        trainer.model, trainer.autocast = self.model, self.autocast
        trainer.scaler, trainer.n_gpu = None, 0
        trainer.args = SimpleNamespace(normalization="tokens", batch_multiplier=1)
        adam = {"optimizer": "adam", "learning_rate": work.lr}
        self.trainer, self.optimizer = trainer, build_optimizer(adam, self.model.parameters())

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def prepare(self, source: Tensor, target: Tensor | None) -> Any:
        from joeynmt.batch import Batch

        def renumber(ids: Tensor) -> Tensor:
            return ids.where(ids > 1, 1 - ids)  # padding is 1, unknown 0

        lengths, numbers = (source > 0).sum(1), torch.arange(len(source))
        target = target if target is None else renumber(target)
        rest = (numbers, torch.device("cpu"), 1, EOS)
        return Batch(renumber(source), lengths, None, target, None, *rest)

    def train(self, batch: Any) -> float:
        loss, _ = self.trainer._train_step(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss)

    def decode(self, source: Tensor, beam: int) -> Any:
        from joeynmt.search import search

        self.model.eval()
        least, most = self.work.limits
        limits = {"max_output_length": most, "min_output_length": least}
        batch = self.prepare(source, None)
        return search(
            self.model, batch, beam_size=beam, beam_alpha=0, **limits, autocast=self.autocast
        )[0]


def vocabularies(size: int) -> dict[str, Any]:
    """Return what OpenNMT-py and Eole know of the vocabulary."""
    import pyonmttok

    tokens = ["<blank>", "<unk>", "<s>", "</s>", *(str(number) for number in range(4, size))]
    vocabulary = pyonmttok.build_vocab_from_tokens(tokens)
    assert [vocabulary[token] for token in tokens[:4]] == [PAD, UNK, BOS, EOS]
    names = {"pad_token": PAD, "unk_token": UNK, "bos_token": BOS, "eos_token": EOS}
    specials = {name: tokens[number] for name, number in names.items()}
    both = {"src": vocabulary, "tgt": vocabulary, "specials": specials}
    return {**both, "decoder_start_token": "<s>", "data_task": "seq2seq"}


def learn(system: Any, work: SimpleNamespace) -> dict[str, list[Any]]:
    """Train; return the seconds of each update, and after every `work.every` of them their number
    and the greedy translations of `work.sources`."""
    seconds, made = [], []
    for update, (rate, batch) in enumerate(zip(work.schedule, work.batches, strict=True), 1):
        began = time.perf_counter()
        system.set_rate(rate)
        system.model.train()
        system.train(system.prepare(*batch))
        seconds.append(time.perf_counter() - began)
        if work.sources and update % work.every == 0:
            with torch.no_grad():
                found = [ids for source in work.sources for ids in system.decode(source, 1)]
            made.append((update, [text_of([int(x) for x in ids]) for ids in found]))
    return {"seconds": seconds, "made": made}


def text_of(ids: list[int]) -> list[int]:
    """Return the ids before the end of the sentence, without special ones."""
    ids = ids[: ids.index(EOS)] if EOS in ids else ids
    return [x for x in ids if x > EOS]


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    sys.modules.update({name: MagicMock() for name in NOT_NEEDED})
    work = SimpleNamespace(**torch.load(sys.argv[2]))
    torch.set_num_threads(work.threads)
    torch.manual_seed(1)
    kind = sys.argv[1]
    system = {"opennmt": OpenNMT, "eole": Eole, "joey": Joey}[kind](work)
    if hasattr(work, "schedule"):
        print("\n" + json.dumps(learn(system, work)))
        return
    prepared = [system.prepare(*batch) for batch in work.batches]
    losses = []
    for number, batch in enumerate(prepared):
        if number == work.warm:
            began = time.perf_counter()
        losses.append(system.train(batch))
    found = {"training": time.perf_counter() - began, "losses": [losses[0], losses[-1]]}
    trained = (x for x in system.model.parameters() if x.requires_grad)
    found["parameters"] = sum(x.numel() for x in trained)
    found["version"] = version({"opennmt": "OpenNMT-py", "joey": "joeynmt"}.get(kind, kind))
    for name, beam in (("beam", 4), ("greedy", 1)):
        for number, source in enumerate(work.sources):
            if number == 1:
                began = time.perf_counter()
            translations = system.decode(source, beam)
            assert len(translations) == len(source)
            assert all(len(ids) == work.limits[1] for ids in translations)
        found[name] = time.perf_counter() - began
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
