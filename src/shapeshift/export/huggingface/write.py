"""Models for Hugging Face's transformers.

config.json, generation_config.json, model.safetensors     the model
source.spm, target.spm, vocab.json, …                      MarianMT's tokenizer
README.md                                                  the model card
export.json, SHA256SUMS                                    see `folder`

What MarianMT can hold becomes a MarianMT model, see `marian`. Everything else is a
`shapeshift.export.huggingface` model, which computes with our code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from shapeshift._system.errors import ShapeshiftError, require
from shapeshift._system.files import MAX_FILE, read, save
from shapeshift.data.batching import make_batch
from shapeshift.data.subwords import BOS, EOS, PAD, SPECIAL_PIECES, Subwords
from shapeshift.decoding.capacity import Capacity, capacity
from shapeshift.decoding.config import DecodingConfig, exponent
from shapeshift.export import marian
from shapeshift.export.folder import Report, Trained, new_folder, refuse_useless_length
from shapeshift.export.parity import BEAM, MAX_LENGTH, Ids, LogProbs, check
from shapeshift.export.support import EXACT, refuse_ids_of_tokens
from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.position_config import PositionConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def export(trained: Trained, target: Path, *, card: str, max_length: int | None = None) -> Report:
    """Write a model for transformers, and check that the model `from_pretrained` opens computes the
    same. `generate` uses the run's decoding settings, as far as transformers has them.

    Raises:
        ShapeshiftError: transformers is not installed; position ids depend on the tokens; the text
            was split by another program; the folder holds something; the check fails; the disk
            refuses; `max_length` has no effect.
    """
    transformers = require("hf", "transformers")
    transformers.utils.logging.disable_progress_bar()  # of files that take no time
    transformers.utils.logging.set_verbosity_error()  # nor advice about its own parts
    model, shape = trained.model, trained.shape
    refuse_ids_of_tokens(trained.position.scheme)
    if trained.subwords.presplit or trained.subword_models is None:
        raise ShapeshiftError(
            "this model reads text that another program has split into subwords, for which"
            " transformers has no tokenizer; train with data.subwords.algorithm=bpe or unigram"
        )
    exported: PreTrainedModel
    wanted = max_length or MAX_LENGTH
    if marian.fits(model, shape):
        exported, own = marian.convert(model, shape, wanted), Capacity(wanted, wanted)
    else:
        exported, own = _as_shapeshift(model, shape, trained.position), capacity(model)
    limit = min(limit for limit in (*own, wanted) if limit is not None)
    refuse_useless_length(max_length, (limit,))
    _set_generation(exported, trained.decoding, limit)
    with new_folder(target) as folder:
        exported.save_pretrained(folder)
        _write_tokenizer(folder, trained.subwords, trained.subword_models, limit)
        parity = check(model, Engine(folder), own, trained.longest)
        report = Report(
            f"transformers {transformers.__version__}",
            type(exported).__name__,
            EXACT,
            own,
            parity,
            trained.weights_sha256,
            checkpoint=trained.checkpoint,
        )
        save(folder / "README.md", card)
        report.save(folder)
    return report


class Engine:
    """An exported model, opened by `from_pretrained`, for `parity.check`."""

    def __init__(self, folder: Path):
        from transformers import AutoModelForSeq2SeqLM

        import shapeshift.export.huggingface  # noqa: F401  registers our classes

        self._model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def score(self, sources: Ids, targets: Ids) -> LogProbs:
        batch = make_batch(sources, targets)
        with torch.no_grad():
            logits = self._model(
                input_ids=batch.source,
                attention_mask=(batch.source != PAD).long(),
                decoder_input_ids=batch.target_input,
            ).logits
        rows = logits.log_softmax(-1)
        return [rows[n, range(len(ids) + 1), [*ids, EOS]].tolist() for n, ids in enumerate(targets)]

    def search(self, sources: Ids, max_steps: int) -> list[tuple[list[int], float]]:
        source = make_batch(sources, sources).source
        found = self._model.generate(
            source,
            attention_mask=(source != PAD).long(),
            num_beams=BEAM,
            length_penalty=0.0,
            early_stopping="never",
            min_new_tokens=max_steps,
            max_new_tokens=max_steps,
            renormalize_logits=True,
            forced_eos_token_id=None,
            output_scores=True,
            return_dict_in_generate=True,
        )
        return list(
            zip(found.sequences[:, 1:].tolist(), found.sequences_scores.tolist(), strict=True)
        )


def _as_shapeshift(
    model: Transformer, shape: ModelConfig, position: PositionConfig
) -> PreTrainedModel:
    from shapeshift.export.huggingface import ShapeshiftConfig, ShapeshiftForSeq2SeqLM

    exported = ShapeshiftForSeq2SeqLM(
        ShapeshiftConfig(
            shape=shape.model_dump(),
            position=position.model_dump(),
            source_size=model.source.tokens.num_embeddings,
            target_size=model.target.tokens.num_embeddings,
        )
    )
    exported.model.load_state_dict({**exported.model.state_dict(), **model.state_dict()})
    exported.train(False)
    return exported


def _set_generation(exported: Any, decoding: DecodingConfig, max_length: int) -> None:
    config = exported.generation_config
    config.num_beams = decoding.beam
    if decoding.beam > 1:  # else transformers refuses to save a penalty, which ranks beams alone
        config.length_penalty = exponent(decoding.length_penalty)
    config.do_sample = False
    config.max_new_tokens = max_length - 1  # and the `<s>`
    config.suppress_tokens = [PAD, BOS]  # which our search does not generate either
    config.decoder_start_token_id = config.bos_token_id = BOS
    config.eos_token_id = config.forced_eos_token_id = EOS
    config.pad_token_id, config.bad_words_ids = PAD, None


def _write_tokenizer(folder: Path, subwords: Subwords, models: Path, max_length: int) -> None:
    """Write the files of MarianMT's tokenizer: SentencePiece models, and a map from pieces to
    ids."""
    from transformers import MarianTokenizer

    for side in ("source", "target"):
        name = "joint" if subwords.joint else side
        save(folder / f"{side}.spm", read(models / f"{name}.model", MAX_FILE))
    vocabularies = {"vocab": subwords.source_pieces(range(subwords.source_size))}
    if not subwords.joint:
        vocabularies["target_vocab"] = subwords.target_pieces(range(subwords.target_size))
    for name, pieces in vocabularies.items():
        ids = {piece: i for i, piece in enumerate(pieces)}
        save(folder / f"{name}.json", json.dumps(ids, ensure_ascii=False, indent=1) + "\n")
    options: dict[str, Any] = {
        "source_spm": str(folder / "source.spm"),
        "target_spm": str(folder / "target.spm"),
        "vocab": str(folder / "vocab.json"),
        "target_vocab_file": None if subwords.joint else str(folder / "target_vocab.json"),
        "separate_vocabs": not subwords.joint,
        "model_max_length": max_length,
        "additional_special_tokens": [SPECIAL_PIECES[BOS]],
    }
    MarianTokenizer(**options).save_pretrained(folder)
