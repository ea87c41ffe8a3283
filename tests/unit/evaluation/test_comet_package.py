"""COMET by the package `unbabel-comet` itself, with a small network of random weights. Needs the
extra `comet`, which wants other versions than `hf` does and so is not among `dev`."""

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.comet import Comet
from shapeshift.evaluation.metrics import score_corpus

comet = pytest.importorskip("comet", exc_type=ImportError)
lightning = pytest.importorskip("pytorch_lightning")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

SOURCES = ["ein Hund", "Rosen im Garten", "zwei Hunde"]
HYPOTHESES = ["a dog", "rose in garden", "two cats"]
REFERENCES = ["a dog", "roses in the garden", "two dogs"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Write a checkpoint as the hub has them: an XLM-R of two layers and a regression on top."""
    folder = tmp_path_factory.mktemp("comet")
    letters = sorted(set("".join(SOURCES + HYPOTHESES + REFERENCES)))
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *letters]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.Unigram([(piece, -1.0) for piece in pieces], unk_id=3)
    )
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    transformers.XLMRobertaTokenizerFast(tokenizer_object=tokenizer).save_pretrained(
        folder / "encoder"
    )
    transformers.XLMRobertaConfig(
        vocab_size=len(pieces) + 1,  # <mask>
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=66,
    ).save_pretrained(folder / "encoder")
    torch.manual_seed(0)
    model = comet.models.RegressionMetric(
        pretrained_model=str(folder / "encoder"),
        load_pretrained_weights=False,
        hidden_sizes=[8],
    )
    trainer = lightning.Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
    trainer.strategy.connect(model)
    path = folder / "model" / "checkpoints" / "model.ckpt"
    path.parent.mkdir(parents=True)
    trainer.save_checkpoint(path)
    (folder / "model" / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    return path, model.eval()


def test_a_score_is_the_mean_of_what_the_network_says(checkpoint):
    path, model = checkpoint
    [found] = score_corpus(
        HYPOTHESES, REFERENCES, ["comet"], sources=SOURCES, comet=Comet(str(path), device="cpu")
    )
    samples = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(SOURCES, HYPOTHESES, REFERENCES, strict=True)
    ]
    with torch.no_grad():
        each = [float(model(**model.prepare_sample([x], "predict")).score) for x in samples]
    assert found.value == pytest.approx(100 * sum(each) / len(each), abs=1e-3)
    assert max(each) - min(each) > 1e-3
    assert found.signature.startswith("model:model.ckpt|sha256:")


def test_a_file_that_is_no_checkpoint_is_one_line(checkpoint, tmp_path):
    path = tmp_path / "checkpoints" / "model.ckpt"
    path.parent.mkdir()
    path.write_bytes(b"no weights")
    (tmp_path / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    with pytest.raises(ShapeshiftError, match=r"cannot be loaded \(.*\); name another") as caught:
        Comet(str(path)).prepare()
    assert "\n" not in str(caught.value)
