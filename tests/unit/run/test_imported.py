"""`shapeshift import`: MarianMT models as runs, with the same logits, and what is refused."""

from __future__ import annotations

import io
import json
import os
import random
from collections import Counter

import pytest
import sentencepiece
import torch
from typer.testing import CliRunner

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli import app
from shapeshift.data.grammar import generate
from shapeshift.data.subwords import BOS, EOS
from shapeshift.run.folder import load_run
from shapeshift.run.imported import import_marian
from shapeshift.run.train import train
from shapeshift.training.observer import Observer

pytest.importorskip("transformers", reason="the extra hf is not installed")
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

TINY = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "scale_embedding": True,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "activation_function": "swish", "max_position_embeddings": 90,
}  # fmt: skip
TEXT = ["The boy reads a book.", "An old man sleeps", ">>deu<< The dog sees it.", "語 x"]


@pytest.fixture(scope="session")
def spms():
    """SentencePiece models of English and German, as OPUS-MT has them."""
    pairs, models = [*generate(400, seed=1, max_words=8)], []
    for side, kind in enumerate(("unigram", "bpe")):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([pair[side] for pair in pairs]), model_writer=out,
            vocab_size=150, model_type=kind, minloglevel=2,
        )  # fmt: skip
        models.append(out.getvalue())
    return models


@pytest.fixture
def make(spms, tmp_path):
    """Writes a MarianMT model of random weights with its tokenizer."""

    def make(*, separate=False, joint_spm=False, bias=True, **settings):
        folder = tmp_path / "marian"
        folder.mkdir()
        names, pieces = ("source", "target"), []
        for name, model in zip(names, (spms[0], spms[not joint_spm]), strict=True):
            (folder / f"{name}.spm").write_bytes(model)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            pieces.append([processor.id_to_piece(n) for n in range(3, processor.vocab_size())])
        lists = pieces if separate else [dict.fromkeys(pieces[0][:-9] + pieces[1])] * 2
        for name, each in zip(names, lists, strict=True):
            ordered = ["</s>", "<unk>", *each, ">>deu<<", "<pad>"]
            vocabulary = json.dumps({piece: n for n, piece in enumerate(ordered)})
            (folder / f"{name}.json").write_text(vocabulary)
        tokenizer = MarianTokenizer(
            *(str(folder / name) for name in ("source.spm", "target.spm", "source.json")),
            separate_vocabs=separate, target_vocab_file=str(folder / "target.json"),
            source_lang="en", target_lang="de",
        )  # fmt: skip
        tokenizer.save_pretrained(folder)
        torch.manual_seed(4)
        size, pad = len(ordered), len(ordered) - 1
        model = MarianMTModel(
            MarianConfig(
                vocab_size=size, decoder_vocab_size=size, pad_token_id=pad,
                decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
                **{**TINY, "share_encoder_decoder_embeddings": not separate, **settings},
            )
        ).eval()  # fmt: skip
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "embed_positions" not in name:
                    parameter += 0.1 * torch.randn_like(parameter)
            for table in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
                table.weight[-1] = 0
            if bias:
                model.final_logits_bias.normal_()
        model.save_pretrained(folder)
        return folder, model, tokenizer

    return make


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bias": False, "activation_function": "gelu"},
        {"tie_word_embeddings": False, "activation_function": "relu"},
        {"separate": True},
        {"joint_spm": True, "decoder_layers": 2},
    ],
    ids=str,
)
def test_logits_are_those_of_marian(settings, make, tmp_path):
    folder, theirs, tokenizer = make(**settings)
    run = import_marian(str(folder), tmp_path / "run")
    ours, subwords = load_run(tmp_path / "run").model(), run.subwords()
    pad = tokenizer.pad_token_id
    lookup = tokenizer.target_encoder if settings.get("separate") else tokenizer.encoder
    pieces = subwords.target_pieces(range(subwords.target_size))
    names = {n: piece.replace("▁>>", ">>") for n, piece in enumerate(pieces) if n}
    ids = {n: lookup[name] for n, name in names.items() if name in lookup} | {BOS: pad}
    assert sorted(ids.values()) == list(range(len(lookup)))  # every logit of theirs
    for text in TEXT:
        source = tokenizer(text, return_tensors="pt").input_ids
        target = tokenizer(text_target="Der Junge liest Bücher.", return_tensors="pt").input_ids
        own_target = subwords.encode_target(["Der Junge liest Bücher."])[0]
        own_source = subwords.encode_source([text])[0]
        with torch.no_grad():
            decoder_input = torch.cat((torch.tensor([[pad]]), target), dim=1)
            expected = theirs(source, decoder_input_ids=decoder_input).logits
            hidden = ours(
                torch.tensor([[*own_source, EOS]]), torch.tensor([[BOS, *own_target, EOS]])
            )
            got = ours.project(hidden)
        for each in (torch.clone, torch.nn.LogSoftmax(-1)):  # where no logit is ours alone
            mine, wanted = each(got)[..., list(ids)], each(expected)[..., list(ids.values())]
            torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-4)
    if settings:
        return
    known, language = [n for n in ids if n > EOS], pieces.index(">>deu<<")
    for _ in range(20):  # text is that of Marian whatever is generated
        chosen = [known[n] for n in torch.randint(len(known), (6,))]
        chosen.insert(3, language)
        text = tokenizer.decode([ids[n] for n in chosen], skip_special_tokens=True)
        assert subwords.decode_target(chosen) == text


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config", {"activation_function": "tanh"}, "activation_function is tanh, expected relu, "),
        ("config", {"scale_embedding": False}, "scale_embedding is False, expected True"),
        ("config", {"decoder_ffn_dim": 52}, "decoder_ffn_dim is 52, expected 48"),
        ("config", {"model_type": "bart"}, "of type bart, expected marian"),
        ("config", {"model_type": "none"}, "cannot be opened by transformers"),
        ("tokenizer_config", {"target_lang": None}, "give --source and --target"),
    ],
)
def test_what_our_model_cannot_hold_is_refused(file, changes, message, make, tmp_path):
    folder, *_ = make(**({"decoder_ffn_dim": 52} if "decoder_ffn_dim" in changes else {}))
    edit(folder / f"{file}.json", **changes)
    with pytest.raises(ShapeshiftError, match=message):
        import_marian(str(folder), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_there_and_back_is_the_same_model(make, tmp_path):
    """Logits, and translations by beam search with the settings of OPUS-MT's models."""
    folder, theirs, tokenizer = make(init_std=0.1, static_position_embeddings=True)
    pad = tokenizer.pad_token_id
    with torch.no_grad():
        theirs.final_logits_bias[0, 0] += 0.5  # so that sentences end
    theirs.generation_config.update(
        bad_words_ids=[[pad]], bos_token_id=0, decoder_start_token_id=pad, eos_token_id=0,
        forced_eos_token_id=0, max_length=512, num_beams=4, pad_token_id=pad, length_penalty=0.0,
        renormalize_logits=True,
    )  # fmt: skip
    theirs.save_pretrained(folder)
    run, exported = tmp_path / "run", tmp_path / "run" / "huggingface"
    assert invoke("import", folder, run).exit_code == 0
    inspected = invoke("inspect", run, TEXT[0], "--output", tmp_path / "page.html")
    assert inspected.exit_code == 0, inspected.output
    assert f"imported from {folder}" in (tmp_path / "page.html").read_text()
    for config in (run / "config.yaml", "demo"):  # nothing of which the text is known
        refused = invoke("train", config, "--run", run)
        assert f"start from it with training.init_from={run}" in str(refused.exception)
    assert "MarianMTModel" in invoke("export", run, "--to", "huggingface").output
    assert "imported" in (exported / "README.md").read_text()
    assert "holds a run already" in str(invoke("import", folder, run).exception)
    back = MarianMTModel.from_pretrained(exported).eval()
    own = MarianTokenizer.from_pretrained(exported)
    lines = [source for source, _ in generate(20, seed=3, max_words=8)]
    limits = ["decoding.max_length_a=0", "decoding.max_length_b=40", "training.precision=fp32"]
    ours = load_run(run, limits).translate(lines)
    outputs, logits = [], []
    for model, each in ((theirs, tokenizer), (back, own)):
        batch = each(lines, return_tensors="pt", padding=True)
        found = model.generate(**batch, max_new_tokens=40, early_stopping="never")
        outputs.append(each.batch_decode(found, skip_special_tokens=True))
        start = torch.full((len(lines), 1), model.config.decoder_start_token_id)
        names = sorted(tokenizer.encoder.keys() & own.encoder.keys() - {"<pad>"})
        ids = [each.encoder[name] for name in names]
        with torch.no_grad():
            logits.append(model(**batch, decoder_input_ids=start).logits[..., ids])
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5)
    assert outputs[0] == outputs[1]
    ends = (found[:, 1:40] == EOS).any(1).tolist()  # else the limit does, which ours charges for
    pairs = [(x, y) for x, y, end in zip(outputs[0], ours, ends, strict=True) if end]
    assert all(x == y for x, y in pairs)
    assert len({*pairs}) > 3


def test_training_starts_from_an_imported_model(make, make_config, tmp_path):
    """With another position representation, from the bias of the logits on."""
    folder, *_ = make(separate=True)
    old = import_marian(str(folder), tmp_path / "run")
    shape = old.config.model.model_dump(exclude={"size"})
    subwords = old.config.data.subwords.model_dump(exclude={"models"})
    settings = [f"model.{name}={value}" for name, value in shape.items()]
    settings += [f"data.subwords.{name}={value}" for name, value in subwords.items()]
    still = ("training.schedule.peak=1e-30", "training.max_updates=1", "position=rpe")
    config = make_config(*settings, f"training.init_from={old.directory}", *still)
    new = train(config, tmp_path / "new", Observer(), prepared_root=tmp_path / "prepared")
    after = dict(new.model().named_parameters())
    for name, weight in old.model().named_parameters():
        torch.testing.assert_close(after[name], weight, rtol=0, atol=1e-20)
    assert after["output_bias"].abs().max() == 100


ODD = [0, -1, 3, 7.5, "a", None, True, [], [[-1]], {}, 10**12, float("nan"), "\ud800", ["x"]]


@pytest.mark.parametrize("num_cases", [25, pytest.param(1_000, marks=pytest.mark.soak)])
def test_no_model_of_a_stranger_ends_in_a_traceback(num_cases, make, tmp_path):
    """Settings, vocabularies and subword models are changed; none is imported to the wrong model,
    since the logits are compared."""
    folder, *_ = make()
    rng, names = random.Random(0), ("config", "tokenizer_config", "generation_config", "vocab")
    files = {path: path.read_bytes() for path in folder.iterdir()}
    documents = [folder / f"{name}.json" for name in names]
    others = [path for path in files if path.suffix in (".spm", ".safetensors")]
    endings = Counter()
    for number in range(num_cases):
        path = rng.choice(documents if rng.random() < 0.8 else others)
        if path in documents:
            document = json.loads(files[path])
            for key in rng.sample([*document, "new"], min(2, len(document))):
                document[key] = rng.choice(ODD)
            path.write_text(json.dumps(document))
        else:
            content = bytearray(files[path])
            for _ in range(4):
                content[rng.randrange(min(4_000, len(content)))] = rng.randrange(256)
            path.write_bytes(content)
        try:
            import_marian(str(folder), tmp_path / f"run-{number}", "en", "de")
            endings["imported"] += 1
        except ShapeshiftError:  # whose message is one line
            endings["refused"] += 1
        path.write_bytes(files[path])
    assert endings["refused"] > num_cases / 4


def test_a_pipe_in_the_folder_of_a_model_is_not_read(make, tmp_path):
    folder, *_ = make()
    os.mkfifo(folder / "added_tokens.json")
    with pytest.raises(ShapeshiftError, match=r"added_tokens\.json: not a regular file"):
        import_marian(str(folder), tmp_path / "run")
