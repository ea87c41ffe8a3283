"""Nothing that can be written into a YAML file, or after `=`, ends in anything but a value or one
line; and what is accepted can be written and read back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import load_config, parse_config
from shapeshift.config.yaml_file import parse_yaml

ROOT = Path(__file__).parents[3] / "src" / "shapeshift" / "config" / "shipped"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{now}: &{now} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, now in zip("abcdefgh", "bcdefghi", strict=True)
)

TOO_LARGE = ["[" * 100 + "]" * 100, "- " * 5000 + "x", "&a [*a]", BOMB]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("true", True),
        ("2024-01-31", "2024-01-31"),
        ("010", 10),
        ("-1_000", -1000),
        ("1:30", "1:30"),
        ("0x_", "0x_"),
        ("1e-3", 0.001),
        ("null", None),
        ("{<<: {a: 1}}", {"<<": {"a": 1}}),
        ("[&x {a: 1}, *x]", [{"a": 1}, {"a": 1}]),
    ],
)
def test_what_plain_values_are(text: str, value: object) -> None:
    found = parse_yaml(text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: 1\nb: 2\na: 3", "the key 'a' is given twice", 3),
        ("!!python/object:os.system x", "could not determine a constructor", 1),
        ("!!set {a, b}", "could not determine a constructor", 1),
        ("!!map x", "expected a mapping", 1),
        ("a:\n\tb: 1", "found a tab; indent with spaces", 2),
        ("9" * 5000, "not a valid number", 1),
        *((text, "more than 50,000 values or 50 levels", None) for text in TOO_LARGE),
        ('"a\\0b"', "a character that is no text", 1),
        ('"\\ud800"', "a character that is no text", 1),
        ("? [a, b]\n: 1", "a key that is no text", 1),
    ],
)
def test_what_is_refused(text: str, message: str, line: int | None) -> None:
    with pytest.raises(ShapeshiftError, match=message) as raised:
        parse_yaml(text)
    assert raised.value.line == line
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("value", [".inf", '"inf"', "1e999", ".nan"])
def test_a_number_that_is_not_finite_is_refused(value: str) -> None:
    part = f"position={{name: mine, parts: [{{kind: rotary, base: {value}}}]}}"
    for override in (f"training.rank_timeout_s={value}", part):
        with pytest.raises(ShapeshiftError, match="number"):
            parse_config({}, [override])


@pytest.mark.parametrize("name", ["x/../../../OUT", "..", "/etc", "a/b", "a\\b", "", "x" * 101])
def test_a_name_that_becomes_a_folder_names_no_other_one(name: str) -> None:
    position = {"name": name, "parts": []}
    with pytest.raises(ShapeshiftError, match=r"position\.name: expected a name"):
        parse_config({"position": position})
    corpus = {"source": name, "target": "de", "train": "a", "valid": "b", "test": "c"}
    for kind in ({"corpus": "files"}, {"corpus": "hub", "repo": "x"}):
        with pytest.raises(ShapeshiftError, match=r"data\.corpus\.source: expected a name"):
            parse_config({"data": {"corpus": {**kind, **corpus}}})


SEEDS = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("*.yaml"))]
NASTY = (
    *("null", "~", "true", "''", "0", "-1", "1e999", "-0.0", ".inf", ".nan", "0x_", "1_0", "010"),
    *("!!int x", "!!float [1]", "!!binary YQ==", "!!omap [a: 1]", "2024-13-45", "=", "'a\tb'"),
    *("9" * 5000, "9" * 18, "1:99:99", "[]", "{}", "[[[[1]]]]", "{a: {b: {c: 1}}}", "[1, a, null]"),
    *('"\\0"', '"\\ud83d"', "*nowhere", "&a [*a]", "&a {x: 1}", "<<", "{<<: [1]}", "../../../etc"),
    *("rope", "wmt14-en-de", "files", "{name: rope}", "{corpus: hub}", "{name: {}}", "{kind: 3}"),
    *("[" * 60, "ä😀", "|\n  text"),
)
KEYS = (
    *("name", "corpus", "kind", "parts", "position_ids", "extends", "seed", "1"),
    *("<<", "null", "?"),
)


def mutated(rng: random.Random) -> str:
    lines = rng.choice(SEEDS).splitlines()
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(lines))
        key, colon, _ = lines[at].partition(":")
        match rng.randrange(7):
            case 0 | 1 | 2:
                lines[at] = f"{key}{colon} {rng.choice(NASTY)}"
            case 3:
                indent = " " * (len(key) - len(key.lstrip()))
                lines[at] = f"{indent}{rng.choice(KEYS)}: {rng.choice(NASTY)}"
            case 4:
                lines.insert(at, rng.choice(lines))
            case 5:
                del lines[at : at + rng.randint(1, 3)]
                lines = lines or [""]
            case _:
                place = rng.randint(0, len(lines[at]))
                new = rng.choice(["\t", "- ", "\x85", "&x ", "!!", *":{]'*#%"])
                lines[at] = lines[at][:place] + new + lines[at][place:]
    return "\n".join(lines)


@pytest.mark.parametrize("num_cases", [700, pytest.param(30_000, marks=pytest.mark.soak)])
def test_damaged_documents_end_in_a_configuration_or_one_line(
    num_cases: int, tmp_path: Path
) -> None:
    rng, path, messages = random.Random(num_cases), tmp_path / "run.yaml", []
    (tmp_path / "shape-paper.yaml").write_text((ROOT / "shape-paper.yaml").read_text())
    for _ in range(num_cases):
        text = mutated(rng)
        path.write_text(text, encoding="utf-8")
        override = f"{rng.choice(KEYS)}.{rng.choice(KEYS)}={rng.choice(NASTY)}"
        try:
            config = load_config(path, [override] * (rng.random() < 0.25))
        except ShapeshiftError as error:
            messages.append(str(error))
            continue
        path.write_text(config.to_yaml(tmp_path), encoding="utf-8")
        assert load_config(path) == config, text
    assert num_cases / 2 < len(messages) < num_cases - 15
    assert all("\n" not in message and len(message) < 4000 for message in messages)
