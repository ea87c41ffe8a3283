"""A MarianMT model of transformers as the folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save

from shapeshift._system.errors import ShapeshiftError, reason, require
from shapeshift._system.files import refuse_irregular
from shapeshift._system.hashes import store
from shapeshift.config import Config, parse_config
from shapeshift.data.config import SPLITS
from shapeshift.data.prepared import IMPORTED_FROM, REPORT_OF_RUN, Report
from shapeshift.data.subwords import BOS, EOS, Subwords
from shapeshift.decoding.scoring import evaluating
from shapeshift.export import marian, marian_subwords
from shapeshift.export.marian_subwords import Side
from shapeshift.export.parity import TOLERANCE
from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.layers import NORM_EPS
from shapeshift.run.folder import AVERAGE, SUBWORDS, Run, has_begun
from shapeshift.training.weights import weights

if TYPE_CHECKING:
    from transformers import MarianMTModel, MarianTokenizer

UNKNOWN = "unknown"
"""Stands for the text that the model was trained on."""


def import_marian(
    name: str, directory: Path, source: str | None = None, target: str | None = None
) -> Run:
    """Create a run folder from a MarianMT model.

    Args:
        name: of the model on the Hugging Face hub, or the folder of one.
        directory: of the run, missing or empty.
        source, target: languages, such as `en` and `de`; by default what the tokenizer says.

    Raises:
        ShapeshiftError: transformers is not installed; there is no such model; our model cannot
            hold it; a language is not known; the folder holds something.
    """
    if has_begun(directory):
        raise ShapeshiftError("holds a run already; name a new folder", path=directory)
    theirs, tokenizer = _load(name)
    try:
        return _import(theirs, tokenizer, name, directory, source, target)
    except (ShapeshiftError, OSError, MemoryError):
        raise
    except Exception as error:  # a stranger's settings and vocabularies may say anything
        raise ShapeshiftError(
            f"is no MarianMT model that can be imported ({type(error).__name__}: {reason(error)})",
            path=name,
        ) from error


def _import(
    theirs: MarianMTModel,
    tokenizer: Any,
    name: str,
    directory: Path,
    source: str | None,
    target: str | None,
) -> Run:
    source, target = source or tokenizer.source_lang, target or tokenizer.target_lang
    if not source or not target:
        raise ShapeshiftError(
            "the tokenizer does not say which languages it is for; give --source and --target",
            path=name,
        )
    sides = _sides(theirs, tokenizer)
    settings: Any = theirs.generation_config
    masked = {
        *(settings.suppress_tokens or ()),
        *(i for i, *more in settings.bad_words_ids or () if not more),
    }
    if settings.renormalize_logits and theirs.config.decoder_start_token_id in masked:
        sides[1].never.add(BOS)  # it has no part in the softmax
    is_joint = sides[0].model == sides[1].model
    has_bias = bool(sides[1].never) or bool(theirs.final_logits_bias.any())
    shares = is_joint and theirs.config.share_encoder_decoder_embeddings
    shape = marian.shape_of(theirs.config, share_embeddings=shares, output_bias=has_bias)
    ours = marian.restore(theirs, shape, sides[0].rows, sides[1].rows, sides[1].never)
    _check(ours, theirs, sides)
    models = [side.model for side in sides[: 1 if is_joint else 2]]
    names = ("joint",) if is_joint else ("source", "target")
    subwords = Subwords(*models)
    config = _config(shape, subwords, models[0], (source, target), theirs)
    run = Run.create(directory, config)
    files = {f"{SUBWORDS}/{x}.model": model for x, model in zip(names, models, strict=True)}
    report = Report(
        fingerprint=UNKNOWN,
        config=config.data,
        subwords=subwords.fingerprint,
        splits={},
        versions={IMPORTED_FROM: name},
    )
    files |= {REPORT_OF_RUN: report.model_dump_json(indent=2).encode()}
    store(directory, files | {AVERAGE: save(weights(ours), {"average_of": "imported"})})
    return run


def _load(name: str) -> tuple[MarianMTModel, MarianTokenizer]:
    require("hf", "transformers")
    from transformers import AutoConfig, MarianMTModel, MarianTokenizer

    refuse_irregular(Path(name))
    try:
        kind = AutoConfig.from_pretrained(name, trust_remote_code=False).model_type
        if kind == "marian":
            model: Any = MarianMTModel.from_pretrained(name, dtype=torch.float32)
            return model.eval(), MarianTokenizer.from_pretrained(name)
    except Exception as error:  # a stranger's files may raise any of transformers, or of pickle
        raise ShapeshiftError(
            f"cannot be opened by transformers: {reason(error)}", path=name
        ) from error
    raise ShapeshiftError(f"is a model of type {kind}, expected marian", path=name)


def _sides(theirs: MarianMTModel, tokenizer: Any) -> tuple[Side, Side]:
    config: Any = theirs.config
    vocabularies = [tokenizer.encoder]
    vocabularies += [tokenizer.target_encoder if tokenizer.separate_vocabs else tokenizer.encoder]
    sizes = (config.vocab_size, config.decoder_vocab_size)
    sides: list[Side] = []
    splitters = [x.serialized_model_proto() for x in (tokenizer.spm_source, tokenizer.spm_target)]
    is_joint = splitters[0] == splitters[1] and vocabularies[0] == vocabularies[1]
    for spm, vocabulary, size in zip(splitters, vocabularies, sizes, strict=True):
        if len(vocabulary) != size:
            raise ShapeshiftError(
                f"our model cannot hold this MarianMT model: vocab_size is {size}, expected that of"
                f" the tokenizer, {len(vocabulary)}"
            )
        sides.append(
            marian_subwords.convert(
                spm, vocabulary, config.pad_token_id, vocabulary[str(tokenizer.unk_token)],
                config.decoder_start_token_id, vocabulary[str(tokenizer.eos_token)],
                reads_languages=is_joint or not sides,
            )
        )  # fmt: skip
    return sides[0], sides[1]


def _check(ours: Transformer, theirs: Any, sides: tuple[Side, Side]) -> None:
    """Raise a `ShapeshiftError` unless both models give random sentences the same
    log-probabilities, up to transformers' different epsilon in LayerNorm."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.tensor([x or 0 for x in side.rows]) for side in sides]
    known = [
        torch.tensor([n for n, x in enumerate(side.rows) if x and n > EOS and n not in side.never])
        for side in sides
    ]
    source, target = (x[torch.randint(len(x), (4, 40), generator=generator)] for x in known)
    target[:, 0] = BOS
    for part in theirs.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.eps = NORM_EPS
    possible = [n for n in range(len(rows[1])) if n not in sides[1].never]
    with evaluating(ours):
        got = ours.project(ours(source, target))[..., possible]
        logits = theirs(rows[0][source], decoder_input_ids=rows[1][target]).logits
    expected = logits[..., rows[1][possible]]
    difference = float((got.log_softmax(-1) - expected.log_softmax(-1)).abs().max())
    if not difference <= TOLERANCE:
        raise ShapeshiftError(
            "the imported model does not compute what MarianMT does: a log-probability differs by"
            f" {difference:.2g}, expected at most {TOLERANCE:g}; nothing is written, please report"
            " it"
        )


def _config(
    shape: ModelConfig,
    subwords: Subwords,
    model: bytes,
    languages: tuple[str, str],
    theirs: MarianMTModel,
) -> Config:
    spec = marian_subwords.read_proto(model)
    generation: Any = theirs.generation_config
    penalties: dict[float | None, str] = {0.0: "none", None: "average", 1.0: "average"}
    name, penalty = spec.normalizer_spec.name, penalties.get(generation.length_penalty)
    known = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
    settings = {
        "algorithm": "bpe" if spec.trainer_spec.model_type == 2 else "unigram",
        "vocab_size": subwords.source_size,
        "joint": subwords.joint,
    }
    corpus = {"corpus": "files", **dict(zip(("source", "target"), languages, strict=True))}
    return parse_config(
        {
            "data": {
                "corpus": corpus | {split: [UNKNOWN] for split in SPLITS},
                "subwords": settings | ({"normalization": name} if name in known else {}),
            },
            "model": shape.model_dump(),
            "position": "ape",
            "decoding": {"beam": generation.num_beams or 1}
            | ({"length_penalty": {"name": penalty}} if penalty else {}),
        }
    )
