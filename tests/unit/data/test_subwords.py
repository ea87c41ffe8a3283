"""Subwords: fixed special ids, user text that looks special, errors with a way out."""

import io
import os
import random
import re
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest
import sentencepiece
import yaml
from sentencepiece import sentencepiece_model_pb2 as protobuf

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.config import SubwordsConfig
from shapeshift.data.subwords import BOS, EOS, PAD, SEP, SPECIAL_PIECES, UNK, Subwords, split_parts

SPECIAL = {PAD, UNK, BOS, EOS, SEP}


def pairs(num_pairs: int = 300) -> list[tuple[str, str]]:
    rng = random.Random(7)
    stems = ["".join(rng.choices("abcdehiklmnoprstu", k=rng.randint(3, 7))) for _ in range(60)]
    english = [*stems[:40], "a", "dog", "<sep>", "</s>", "<s>", "<pad>", "<unk>", "<b>", "x/y"]
    german = [*stems[20:], "ein", "kleines", "Haus", "Hund", "das", "grün", "läuft", "<sep>"]
    return [
        (" ".join(rng.choices(english, k=6)), " ".join(rng.choices(german, k=6)))
        for _ in range(num_pairs)
    ]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def joint(request, tmp_path_factory):
    config = SubwordsConfig(algorithm=request.param, vocab_size=70)
    return Subwords.train(pairs, config, tmp_path_factory.mktemp("joint"))


def test_text_survives_the_round_trip(joint):
    sources = [source for source, _ in pairs()]
    targets = [target for _, target in pairs()]
    assert [joint.decode_target(x) for x in joint.encode_source(sources)] == sources
    assert [joint.decode_target(x) for x in joint.encode_target(targets)] == targets
    assert (joint.source_size, joint.target_size, joint.joint) == (70, 70, True)
    (ids,) = joint.encode_target(["ein kleines Haus"])
    assert joint.decode_target([BOS, *ids, EOS, PAD, PAD]) == "ein kleines Haus"


@pytest.mark.parametrize("literal", ["<sep>", "</s>", "<s>", "<pad>", "<unk>", "a <sep> b</s>"])
def test_a_literal_special_piece_is_ordinary_text(joint, literal):
    (ids,) = joint.encode_source([literal])
    assert not SPECIAL - {UNK} & set(ids)
    assert len(ids) > 1


def test_parts_are_joined_by_the_separator_id(joint):
    first, second = joint.encode_target(["das Haus", "ein Hund"])
    (ids,) = joint.encode_target(["das Haus <sep> ein Hund"], joined=True)
    assert ids == [*first, SEP, *second]
    assert joint.decode_target(ids) == "das Haus <sep> ein Hund"
    (ids,) = joint.encode_source([" <sep> a dog <sep>  <sep> "], joined=True)
    assert (ids[0], ids[-1], ids.count(SEP)) == (SEP, SEP, 3)
    assert split_parts(joint.decode_target(ids)) == ["", "a dog", "", ""]


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nfkc", "nfkc_cf", "identity"])
@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_the_carriage_return_of_a_crlf_file_is_no_text(tmp_path, algorithm, normalization):
    config = SubwordsConfig(algorithm=algorithm, vocab_size=70, normalization=normalization)
    crlf = [(f"{source}\r", f"{target}\r") for source, target in pairs()]
    subwords = Subwords.train(lambda: crlf, config, tmp_path)
    one, two = subwords.encode_target(["das Haus", "ein Hund"])
    assert UNK not in one
    assert subwords.encode_target(["das Haus\r", "ein Hund\r", "\r"]) == [one, two, []]
    joined = subwords.encode_target(["das Haus\r <sep> ein Hund\r"], joined=True)
    assert joined == [[*one, SEP, *two]]


def test_separate_models_know_only_their_language_and_are_loaded_again(tmp_path):
    trained = Subwords.train(pairs, SubwordsConfig(vocab_size=60, joint=False), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"source.model", "target.model"}
    subwords = Subwords.load(tmp_path)
    assert not subwords.joint
    assert subwords.fingerprint == trained.fingerprint
    assert UNK in subwords.encode_source(["grün"])[0]
    assert UNK not in subwords.encode_target(["grün"])[0]


SAMPLED = """
import sys
from pathlib import Path
from shapeshift.data.config import SubwordsConfig
from shapeshift.data.subwords import Subwords
pairs = [(f"{i} man {i * 7919 % 1000} cat", f"{i} Mann {i * 31 % 977}") for i in range(4000)]
config = SubwordsConfig(algorithm=sys.argv[2], vocab_size=300, max_sentences=1000)
Subwords.train(lambda: pairs, config, Path(sys.argv[1]))
"""


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_a_sampled_corpus_gives_every_process_the_same_model(tmp_path, algorithm):
    for name in "ab":
        subprocess.run([sys.executable, "-c", SAMPLED, tmp_path / name, algorithm], check=True)
    one, two = (Subwords.load(tmp_path / name) for name in "ab")
    assert one.fingerprint == two.fingerprint


def test_a_sample_is_of_the_whole_text_in_its_order(monkeypatch, tmp_path):
    given = []

    def note(*, sentence_iterator, model_writer, **_):
        given.extend(sentence_iterator)
        raise RuntimeError

    monkeypatch.setattr("sentencepiece.SentencePieceTrainer.train", note)
    config = SubwordsConfig(joint=False, max_sentences=1_500)
    # Empty sentences do not count: the source has 3,000 to draw from, the target 1,500.
    both = [(f"{i:04}", f"{i:04}" if i % 2 else "") for i in range(3_000)]
    for texts in zip(*both, strict=True):
        given.clear()
        with pytest.raises(RuntimeError):
            Subwords.train(lambda texts=texts: [(x, x) for x in texts], config, tmp_path)
        assert len(given) == 1_500
        assert given == sorted(given)
    assert "" not in given


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
@pytest.mark.parametrize(("asked", "word"), [(5_000, "less"), (10, "more")])
def test_an_impossible_size_names_one_that_works(tmp_path, algorithm, asked, word, capfd):
    config = SubwordsConfig(algorithm=algorithm, vocab_size=asked)
    with pytest.raises(ShapeshiftError, match=rf"vocab_size to \d+ or {word}") as caught:
        Subwords.train(pairs, config, tmp_path)
    feasible = int(str(caught.value).split("vocab_size to ")[1].split()[0])
    again = SubwordsConfig(algorithm=algorithm, vocab_size=feasible)
    assert Subwords.train(pairs, again, tmp_path).source_size == feasible
    assert capfd.readouterr() == ("", "")  # SentencePiece writes to the terminal


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        [("a", "b")],
        [("a man", "ein Mann")],
        [("the cat sat on the mat", "die Katze sass auf der Matte")] * 20,
        [("a\tb\tc", "d\te")],
        [("a a a", "".join(map(chr, range(0x4E00, 0x4E80))))] * 9,
    ],
)
def test_remedies_for_tiny_text_end(tmp_path, algorithm, joint, text):
    settings = {"algorithm": algorithm, "joint": joint, "vocab_size": 4_000}
    for _ in range(6):
        try:
            Subwords.train(lambda: iter(text), SubwordsConfig(**settings), tmp_path)
            return
        except ShapeshiftError as error:
            said = str(error)
            assert ("source side" in said or "target side" in said) == (not settings["joint"])
            match = re.search(r"; set data\.subwords\.(\w+)(?: to |=)(\w+)", said)
            settings[match[1]] = yaml.safe_load(match[2])
    pytest.fail(said)


def test_no_text_is_an_error(tmp_path):
    with pytest.raises(ShapeshiftError, match="empty"):
        Subwords.train(lambda: iter([("", "")]), SubwordsConfig(), tmp_path)


def test_an_error_in_the_text_comes_through(tmp_path):
    def broken():
        yield "a", "b"
        raise ShapeshiftError("unequal counts")

    with pytest.raises(ShapeshiftError, match=r"^unequal counts$"):
        Subwords.train(broken, SubwordsConfig(), tmp_path)


def test_missing_models_are_named(tmp_path):
    with pytest.raises(ShapeshiftError, match=r"no subword model; expected joint\.model"):
        Subwords.load(tmp_path)


def serialised(algorithm: str, **settings: object) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([side for pair in pairs() for side in pair]), model_writer=model,
        model_type=algorithm, vocab_size=80, minloglevel=2, **settings,
    )  # fmt: skip
    return model.getvalue()


OURS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "pad_piece": "<pad>"}
SPECIAL_LINES = "".join(f"{piece}\n" for piece in SPECIAL_PIECES).encode()


WHOLE = serialised("bpe", **OURS, control_symbols=["<sep>"])
LAST_PIECE = protobuf.ModelProto.FromString(WHOLE).pieces[-1].piece.encode()
NO_MODELS = {
    "empty": b"",
    "zeros": b"\0" * 100,
    "text": b"no model\n" * 50,
    "pieces that are no text": SPECIAL_LINES + b"\xff\n",
    "order": serialised("bpe"),
    "no <sep>": serialised("unigram", **OURS),
    "cut": WHOLE[:-200],
    "a piece that is no text": WHOLE.replace(LAST_PIECE, b"\xff" * len(LAST_PIECE)),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_what_is_no_model_of_ours_is_refused_in_one_line(tmp_path, name):
    (tmp_path / "joint.model").write_bytes(NO_MODELS[name])
    with pytest.raises(ShapeshiftError, match="cannot be used") as caught:
        Subwords.load(tmp_path)
    assert caught.value.path == tmp_path
    assert "\n" not in str(caught.value)


def changed(content: bytes, rng: random.Random) -> bytes:
    """Return a model with changed bytes, or with other pieces, settings or normalisation."""
    data = bytearray(content)
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    proto = protobuf.ModelProto.FromString(content)
    for _ in range(rng.randint(1, 4)):
        piece, how = rng.choice(proto.pieces), rng.randrange(6)
        if how == 0:
            piece.piece = rng.choice(["", "a", "<0x41>", "<unk>", "▁" * 9, "x" * 100_000])
        elif how == 1:
            piece.score = rng.choice([float("nan"), float("inf"), -1e38, 0.0])
        elif how == 2:
            piece.type = rng.randint(1, 6)
        elif how == 3:
            proto.trainer_spec.model_type = rng.randint(1, 4)
            proto.trainer_spec.byte_fallback = rng.random() < 0.5
        elif how == 4:
            name = rng.choice(["pad_id", "unk_id", "bos_id", "eos_id"])
            setattr(proto.trainer_spec, name, rng.choice([-1, 0, 99_999, 2**31 - 1]))
        else:  # the size of a trie, the trie, and texts
            trie = rng.randbytes(1024 * rng.randint(0, 4))
            size = rng.choice([len(trie), 0, 4, 2 * len(trie), 2**32 - 4])
            spec = rng.choice([proto.normalizer_spec, proto.denormalizer_spec])
            texts = rng.randbytes(30) + b"\0"
            spec.precompiled_charsmap = size.to_bytes(4, "little") + trie + texts
    return proto.SerializeToString()


def ending(content: bytes, texts: list[str]) -> str:
    """Use a model in a process of its own; return how that ended."""
    child = os.fork()
    if not child:
        status = 1
        try:
            subwords = Subwords(content)
            for ids in subwords.encode_source(texts):
                assert all(0 <= i < subwords.source_size for i in ids)
                subwords.decode_target(ids)
            subwords.decode_target(range(subwords.target_size))
            status = 0
        except ValueError:
            status = 3
        finally:
            os._exit(status)
    result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "used", 1: "traceback or id out of range", 3: "refused"}.get(result, f"{result}")


@pytest.mark.parametrize("num_cases", [40, pytest.param(5_000, marks=pytest.mark.soak)])
def test_no_model_of_a_stranger_ends_the_process(num_cases):
    rng, endings = random.Random(0), Counter()
    unigram = partial(serialised, "unigram", **OURS, control_symbols=["<sep>"])
    models = [unigram(), WHOLE, unigram(normalization_rule_name="identity")]
    texts = ["a dog", "ｗｉｄｅ ½ … 가각 日本語", "", "\ufffd\U0001f600 </s>", "x" * 2_000]
    for _ in range(num_cases):
        endings[ending(changed(rng.choice(models), rng), texts)] += 1
    assert endings.keys() == {"used", "refused"}
