"""`shapeshift positions`: what there is, and one of them described."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from shapeshift.attention import BACKENDS, example, explain
from shapeshift.cli import app
from shapeshift.cli.output import plain_console, show_table
from shapeshift.config import parse_config
from shapeshift.positions import KINDS, POSITION_IDS, SCHEMES, get


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapeshift.cli.output.results_console", lambda: plain_console(width=80))


def test_80_columns_cut_no_name() -> None:
    result = CliRunner().invoke(app, ["positions"])
    words = set(re.split(r"[\s,]+", result.output))
    assert {*SCHEMES, *KINDS, *POSITION_IDS} <= words
    assert {place for entry in KINDS.values() for place in entry.build.places} <= words
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_table_prints_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("x", "[bold]"), [("row", "[red]1")], ["a [note]"])
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("[bold]", "[red]1", "a [note]"))


def explained(*options: str) -> list[list[str]]:
    """Return the paragraphs that `--explain` prints, in lines."""
    result = CliRunner().invoke(app, ["positions", *options, "--explain"])
    assert result.exit_code == 0, result.output
    return [each.splitlines() for each in result.output.strip().split("\n\n")]


def reasons(paragraph: list[str]) -> dict[str, str]:
    lines = [line.split(maxsplit=1) for line in paragraph if line.startswith("  ")]
    return {line[0]: line[1] for line in lines}


def test_a_kind_with_axes_is_described_for_models_of_ones_own() -> None:
    result = CliRunner().invoke(app, ["positions", "axial"])
    assert result.exit_code == 0
    assert "num_axes=2" in result.output
    assert "shapeshift.positions.get('axial', head_dim=64)" in result.output
    assert "in a configuration" not in result.output


@pytest.mark.parametrize("name", [*SCHEMES, *KINDS, *POSITION_IDS])
def test_each_is_described_with_its_options_its_use_and_how_it_is_computed(name: str) -> None:
    result = CliRunner().invoke(app, ["positions", name])
    assert result.exit_code == 0
    words = " ".join(result.output.split())
    numbering = POSITION_IDS[name].build if name in POSITION_IDS else None
    if reads_tokens := numbering is not None and numbering.reads_tokens:
        assert f"CTranslate2: refused: {name} position ids, which depend on the tokens" in words
    onnx = "; ONNX: refused: ONNX has no operator for path" if name == "path" else ", ONNX; CT"
    exported = f"exports to torch.compile, torch.export, Hugging Face{onnx}"
    assert (exported in words) == (not reads_tokens)
    usage = result.output.partition("in a configuration: ")[2]
    document = yaml.safe_load(usage.partition("\nhow")[0])
    if "…" in usage:  # in place of options without a default
        given = document["position"]["position_ids"].items()
        missing = {option for option, value in given if value == "…"}
        parameters = POSITION_IDS[name].options().items()
        assert missing == {option for option, x in parameters if x.default is x.empty}
        return
    position = parse_config(document).position
    assert name in (
        position.name,
        *(part.kind for part in position.scheme.parts),
        position.scheme.position_ids.name,
    )
    assert "parameters added to transformer-base: " in result.output
    assert re.search(r"[Cc]hoose\s+it\s", result.output)
    described = [KINDS[part.kind] for part in position.scheme.parts]
    if name in POSITION_IDS:
        described = [POSITION_IDS[name]]
    words = set(re.split(r"[\s=,]+", result.output))
    assert all(entry.options().keys() <= words for entry in described)
    for chosen in ((), ("--device", "cuda"), ("--decode",), ("--length", "1025", "--no-kernels")):
        _, *groups = explained(name, *chosen)
        assert groups
        for group in groups:
            assert max(map(len, group)) <= 100
            found = reasons(group)
            assert [*found] == [*BACKENDS][: len(found)]
            assert [*found.values()].index("serves") == len(found) - 1


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", {"length": 64}),
        ("--train", {"train": True}),
        ("--length 2048 --no-kernels", {"length": 2048, "with_kernels": False}),
        ("--decode --dtype bf16", {"decode": True, "dtype": torch.bfloat16}),
        (
            "--device cuda --train --dropout 0.1",
            {"device": "cuda", "train": True, "dropout_p": 0.1},
        ),
        ("--device cuda --compiled", {"device": "cuda", "compiled": True}),
        ("--device cuda --dtype fp16", {"device": "cuda", "dtype": torch.float16}),
    ],
)
def test_each_option_of_explain_reaches_the_call(options: str, wanted: dict[str, Any]) -> None:
    for name in ("shaw", "rotary"):
        position = get(name, num_heads=8, head_dim=64)
        expected = explain(example(position, **wanted))
        found = reasons(explained(name, *options.split())[1])
        assert found == {
            **{backend: f"no: {why}" for backend, why in expected.reasons.items()},
            expected.backend: "serves",
        }
        assert explain(position, **wanted) == expected


def test_explain_names_each_attention_of_a_scheme_that_differs() -> None:
    head, *groups = explained("less-feeding-cross-pe", "--train", "--no-kernels")
    assert head[1] == "training, on a CPU, without compiled kernels, in fp32, 64 tokens"
    names = {line for group in groups for line in group if not line.startswith("  ")}
    assert names == {
        "encoder self-attention, layer 0: Sinusoidal",
        "encoder self-attention, layers 1 to 5: no position",
        "decoder self-attention, layer 0: Sinusoidal",
        "decoder self-attention, layers 1 to 5: no position",
        "decoder cross-attention, layer 0: Sinusoidal",
        "decoder cross-attention, layers 1 to 5: no position",
    }
    _, *groups = explained("skew-cross-pe", "--device", "cuda", "--decode")
    assert not [line for group in groups for line in group if "encoder self" in line]
    assert len(groups) > 1  # skew, and the others


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("rope --train", "--train: describes an attention for --explain; add --explain"),
        ("rope --length 64", "--length: describes an attention for --explain"),
        ("rope --dropout 0", "--dropout: describes an attention for --explain"),
        ("rope --output x", "--output: is the folder of `shapeshift positions golden`"),
        ("golden --train", "--train: has no effect on `shapeshift positions golden`"),
        ("golden --explain", "--explain: has no effect on `shapeshift positions golden`"),
        ("--device cpu", "--device: describes an attention for --explain"),
        ("--explain", "--explain: needs the NAME"),
        ("rope --explain --train --decode", "--decode: excludes --train"),
        ("rope --explain --device cuda --no-kernels", "--no-kernels: has no effect on a GPU"),
        ("rope --explain --dropout 1.5", "less than or equal to 1"),
    ],
)
def test_options_without_effect_are_refused(arguments: str, answer: str) -> None:
    result = CliRunner().invoke(app, ["positions", *arguments.split()])
    assert result.exit_code == 2
    assert answer in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("rotary_pos_emb", "did you mean 'rope'?"),
        ("NoPos", "did you mean 'nope'?"),
        ("kerpel", "did you mean 'kerple'? (known: nope, ape, "),
    ],
)
def test_a_foreign_name_is_answered(name: str, answer: str) -> None:
    error = CliRunner().invoke(app, ["positions", name]).exception
    assert str(error).startswith(f"unknown scheme {name!r}; {answer}")


def test_a_call_takes_no_options_of_an_example() -> None:
    with pytest.raises(TypeError, match="a Call takes no options, got device"):
        explain(example(get("nope")), device="cuda")


def test_a_kind_is_explained_where_it_acts() -> None:
    _, group = explained("shaw", "--device", "cuda", "--train")
    assert group[:2] == ["encoder self-attention: Shaw", "decoder self-attention: Shaw"]
    assert [*reasons(group)] == ["packed", "triton"]
    _, group = explained("xpos", "--train")
    assert group[:2] == ["encoder self-attention: Rotary", "decoder self-attention: XPos"]
    _, group = explained("shifted")
    assert "decoder cross-attention: no position" in group
