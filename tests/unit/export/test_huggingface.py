"""Models exported for transformers compute what ours do, as `from_pretrained` opens them."""

from __future__ import annotations

import json

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import BOS, EOS
from shapeshift.export import marian
from shapeshift.export.huggingface.write import export
from shapeshift.positions import SCHEMES, Part, Scheme

pytest.importorskip("transformers", reason="the extra hf is not installed")
import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from shapeshift.export.huggingface import ShapeshiftConfig, ShapeshiftForSeq2SeqLM

from ..cli.running import ENVIRONMENT, python

TEXT = ["The boy reads a book.", "A man sleeps", "ﬁne  words, 語 <sep>"]


def run(made, target):
    return export(made.trained, target, card="# mine\n")


@pytest.fixture
def named(make):
    return lambda scheme, *arguments, **settings: make(SCHEMES[scheme], *arguments, **settings)


LONGROPE = {  # options that are names and lists
    "rope_type": "longrope", "rope_theta": 500.0, "original_max_position_embeddings": 8,
    "factor": 4.0, "short_factor": [1.0] * 4, "long_factor": [1.5, 2.0, 3.0, 4.0],
}  # fmt: skip
OPTIONS = {"rope_parameters": LONGROPE, "length": 100}
EVERY = SCHEMES | {"longrope": Scheme(parts=(Part("rotary", options=OPTIONS),))}
MOST = ("shape", "rpe", "t5", "rope", "xpos", "cross-pe", "randomized", "longrope")


@pytest.mark.parametrize(
    "scheme", [*MOST, *(pytest.param(x, marks=pytest.mark.slow) for x in SCHEMES if x not in MOST)]
)
def test_every_scheme_is_the_same(scheme, make, tmp_path):
    report = run(make(EVERY[scheme]), tmp_path / "model")
    assert report.opened_by == "ShapeshiftForSeq2SeqLM"
    assert report.parity.log_prob < 1e-5


@pytest.mark.long
def test_marian_needs_no_shapeshift(named, data, apart, tmp_path):
    expected = []
    for scheme, joint in (("ape", True), ("shape", False)):
        subwords = (data if joint else apart).subwords
        shape = {"share_embeddings": joint, "activation": "gelu", "output_bias": joint}
        made = named(scheme, subwords, norm="post", **shape)
        assert run(made, tmp_path / scheme).opened_by == "MarianMTModel"
        with torch.no_grad():
            for ids in made.subwords.encode_source(TEXT):
                hidden = made.model(torch.tensor([[*ids, EOS]]), torch.tensor([[BOS]]))
                expected.append(made.model.project(hidden)[0, 0])
    program = f"""
import sys, torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
for name in ("ape", "shape"):
    model = AutoModelForSeq2SeqLM.from_pretrained(name)
    batch = AutoTokenizer.from_pretrained(name)({TEXT!r}, return_tensors="pt", padding=True)
    start = torch.full((3, 1), {BOS})
    print(*model.eval()(**batch, decoder_input_ids=start).logits[:, 0].tolist(), sep="\\n")
assert not any(name.startswith("shapeshift") for name in sys.modules)
"""
    environment = ENVIRONMENT | {"HF_HUB_OFFLINE": "1"}
    result = python("-c", program, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
    for line, logits in zip(result.stdout.splitlines(), expected, strict=True):
        torch.testing.assert_close(torch.tensor(json.loads(line)), logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("scheme", "norm"),
    [
        (SCHEMES["ape"], "pre"),
        (SCHEMES["learned"], "post"),
        (SCHEMES["rpe"], "post"),
        (Scheme(parts=(Part("sinusoidal", "embedding", options={"channels": "halves"}),)), "post"),
        (Scheme(parts=(Part("sinusoidal", "embedding", options={"base": 500.0}),)), "post"),
    ],
)
def test_what_marian_cannot_hold_keeps_our_class(scheme, norm, make):
    made = make(scheme, norm=norm)
    assert not marian.fits(made.model, made.shape)


@pytest.mark.parametrize("joint", [True, False])
def test_the_tokenizer_has_our_ids(joint, named, data, apart, tmp_path):
    data = data if joint else apart
    made = named("rpe", data.subwords, share_embeddings=joint)
    run(made, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer(TEXT[:2]).input_ids
    assert ids == [[*each, EOS] for each in made.subwords.encode_source(TEXT[:2])]
    ids = tokenizer(text_target=TEXT[:2]).input_ids
    assert ids == [[*each, EOS] for each in made.subwords.encode_target(TEXT[:2])]
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert texts == [made.subwords.decode_target(each[:-1]) for each in ids]


def test_it_trains_and_generates(named, tmp_path):
    """With labels, dropout and SHAPE's offsets; `generate` with and without a cache."""
    run(named("shape", dropout=0.1), tmp_path / "model")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    batch = tokenizer(TEXT, text_target=TEXT, return_tensors="pt", padding=True)
    batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(12):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    model.eval()
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    for num_beams in (1, 3):
        options = {"num_beams": num_beams, "max_new_tokens": 9}
        cached, full = (model.generate(**source, **options, use_cache=x) for x in (True, False))
        assert torch.equal(cached, full)
        alone = model.generate(tokenizer(TEXT[1], return_tensors="pt").input_ids, **options)
        assert cached[1, : alone.shape[1]].tolist() == alone[0].tolist()
    model.save_pretrained(tmp_path / "again")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").eval()
    assert torch.equal(again(**batch).logits, model(**batch).logits)


@pytest.mark.long
def test_the_trainers_of_transformers_train_and_evaluate(named, tmp_path):
    """`Seq2SeqTrainer`, which is a `Trainer`."""
    pytest.importorskip("accelerate", reason="the extra hf is not installed")
    run(named("rpe"), tmp_path / "model")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    rows = [tokenizer(line, text_target=line) for line in TEXT]
    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=2, eval_strategy="steps", eval_steps=1,
        save_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, predict_with_generate=True,
        generation_max_length=6,
    )  # fmt: skip
    trainer = transformers.Seq2SeqTrainer(
        model=model, args=arguments, train_dataset=rows, eval_dataset=rows,
        data_collator=transformers.DataCollatorForSeq2Seq(tokenizer, model),
    )  # fmt: skip
    trainer.train()
    assert trainer.predict(rows).predictions.shape[0] == len(rows)
    saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out" / "checkpoint-2")
    for name, weight in saved.named_parameters():
        assert torch.equal(weight, model.get_parameter(name))


def small(target_size=50, **shape):
    config = ShapeshiftConfig(
        shape={"size": "tiny", "dropout": 0.0, **shape},
        position={"name": "rpe"},
        source_size=50,
        target_size=target_size,
    )
    torch.manual_seed(0)
    return ShapeshiftForSeq2SeqLM(config)


@pytest.mark.long
def test_a_step_of_accumulated_batches_is_that_of_one_batch(tmp_path):
    """Lengths differ, so the mean of the batches' means is another loss."""
    pytest.importorskip("accelerate", reason="the extra hf is not installed")
    ids = torch.randint(5, 50, (30,), generator=torch.Generator().manual_seed(1)).tolist()
    rows = [{"input_ids": ids[:n], "labels": ids[:n]} for n in (2, 30, 3, 4)]

    def collate(rows):
        length = max(len(row["labels"]) for row in rows)
        labels = torch.tensor(
            [row["labels"] + [-100] * (length - len(row["labels"])) for row in rows]
        )
        real = labels != -100
        return {"input_ids": labels * real, "attention_mask": real.long(), "labels": labels}

    steps = []
    for count in (1, 2, 4):
        model = small()
        before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        arguments = transformers.Seq2SeqTrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=4 // count, max_steps=1,
            gradient_accumulation_steps=count, learning_rate=1.0, optim="sgd", max_grad_norm=0.0,
            report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = transformers.Seq2SeqTrainer(
            model=model, args=arguments, train_dataset=rows, data_collator=collate
        )
        trainer.train()
        steps.append(torch.cat([p.detach().flatten() for p in model.parameters()]) - before)
    assert steps[0].norm() > 0
    for step in steps[1:]:
        torch.testing.assert_close(step, steps[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "shape", [{}, {"share_embeddings": False, "tie_output": False, "output_bias": True}]
)
@pytest.mark.parametrize("size", [60, 40])
def test_a_resized_vocabulary_is_saved_and_opened(shape, size, tmp_path):
    model = small(**shape).eval()
    ids = torch.randint(5, 40, (2, 7), generator=torch.Generator().manual_seed(1))
    before = model(input_ids=ids, labels=ids).logits
    tokens = model.resize_token_embeddings(size)
    assert tokens is model.get_input_embeddings()
    resized = model(input_ids=ids, labels=ids).logits
    assert resized.shape == (2, 7, size)
    kept = min(size, 50)
    torch.testing.assert_close(resized[..., :kept], before[..., :kept])
    assert model.config.source_size == model.config.target_size == model.config.vocab_size == size
    model.save_pretrained(tmp_path)
    opened = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    assert torch.equal(opened(input_ids=ids, labels=ids).logits, resized)
    assert opened.generate(ids, max_new_tokens=3).max() < size


def test_a_kind_that_is_not_here_is_said_in_one_line(tmp_path):
    small().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["position"] = {"parts": [{"kind": "absent_module:Kind", "place": "self"}]}
    path.write_text(json.dumps(config))
    with pytest.raises(ShapeshiftError, match=r"config.json: .*absent_module:Kind") as raised:
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert "pydantic" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_two_vocabularies_are_not_resized(tmp_path):
    model = small(share_embeddings=False, target_size=70)
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    assert model.resize_token_embeddings() is model.get_input_embeddings()
    with pytest.raises(ShapeshiftError, match="vocabularies of 50 and 70 tokens"):
        model.resize_token_embeddings(60)
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())


def test_what_the_encoder_gave_serves_in_evaluation_mode_alone():
    model = small().eval()
    ids, start = torch.tensor([[5, 7, 3]]), torch.tensor([[BOS]])
    encoded = model.get_encoder()(ids)
    for outputs in (encoded, (encoded.last_hidden_state,)):
        logits = model(encoder_outputs=outputs, decoder_input_ids=start).logits
        assert torch.equal(logits, model(ids, decoder_input_ids=start).logits)
    assert model.generate(ids, max_new_tokens=2).shape[0] == 1


IDS = torch.tensor([[5, 7, 3], [6, 3, 0]])
START = torch.full((2, 1), BOS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.train().generate(IDS), r"call model.eval\(\) first"),
        (lambda model: model(IDS), "labels or decoder_input_ids"),
        (
            lambda model: model.generate(IDS.flip(1), attention_mask=(IDS.flip(1) != 0).long()),
            r"input_ids must .* padding \(0\) on its right",
        ),
        *(
            (
                lambda model, mask=mask, given=given: model(
                    **given(model), attention_mask=mask, decoder_input_ids=START
                ),
                r"attention_mask must be .* = \(2, 3\), got",
            )
            for mask in (torch.ones(2, 1), torch.ones(1, 3))  # which would broadcast
            for given in (
                lambda model: {"input_ids": IDS},
                lambda model: {"encoder_outputs": model.get_encoder()(IDS)},
            )
        ),
    ],
)
def test_what_would_be_read_wrongly_is_refused(call, message):
    with pytest.raises(ShapeshiftError, match=message):
        call(small().eval())
