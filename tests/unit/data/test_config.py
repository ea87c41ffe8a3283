"""Data configuration: what is refused, and that reading it stays light."""

import pytest
from pydantic import TypeAdapter, ValidationError

from shapeshift.data.config import DataConfig, GrammarCorpus, Recipe

from ..cli.running import python

FILES = {"corpus": "files", "source": "en", "target": "de"}
HUB = {"corpus": "hub", "repo": "a/b", "source": "en", "target": "de"}
ARCHIVE = {"url": "https://example.org/x", "file": "x", "hash": f"md5:{'0' * 32}"}
SPLITS = {"train": ["a", "b"], "valid": ["c"], "test": ["d"]}


def test_importing_the_configuration_loads_no_heavy_package():
    code = (
        "import sys, shapeshift.data.config; "
        "print([x for x in ('torch', 'numpy', 'sentencepiece') if x in sys.modules])"
    )
    result = python("-c", code)
    assert result.stdout.strip() == "[]", result.stderr


def test_defaults_are_the_papers():
    recipes = TypeAdapter(Recipe)
    assert recipes.validate_python({"name": "extrapolate"}).max_length == 50
    assert recipes.validate_python({"name": "interpolate"}).num_joined == 10
    assert recipes.validate_python({"name": "length_slice", "min_length": 80}).max_length is None
    assert isinstance(DataConfig().corpus, GrammarCorpus)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"recipe": {"name": "extrapolated"}}, "extrapolated"),
        ({"recipe": {"name": "vanilla", "max_length": 50}}, "max_length"),
        ({"recipe": {"name": "interpolate", "num_joined": 1}}, "num_joined"),
        ({"corpus": {"corpus": "grammar", "min_words": 2}}, "min_words"),
        ({"corpus": {"corpus": "grammar", "min_words": 9, "max_words": 8}}, "min_words=9 is over"),
        ({"corpus": FILES | SPLITS | {"target": "en"}}, "source and target are both"),
        ({"corpus": HUB | {"columns": ["x", "x"]}}, "are both the column 'x'"),
        ({"corpus": HUB | {"seed": 2}}, "2 has no effect with share=1.0"),
        (
            {"recipe": {"name": "length_slice", "min_length": 9, "max_length": 9}},
            r"no length is in \[9, 9\); set it to 10 or more",
        ),
        ({"subwords": {"character_coverage": 0.97}}, "character_coverage"),
        ({"subword": {}}, "subword"),
        ({"filter": {"max_length": 0}}, "max_length"),
        ({"filter": {"max_ratio": 0.5}}, "max_ratio"),
        ({"filter": {"longest": 3}}, "longest"),
        *(
            ({"corpus": FILES | SPLITS | {"archive": ARCHIVE | wrong}}, next(iter(wrong)))
            for wrong in ({"url": "ftp://example.org/x"}, {"file": "../x"}, {"hash": "sha256:abc"})
        ),
    ],
)
def test_nonsense_is_refused(document, message):
    with pytest.raises(ValidationError, match=message):
        DataConfig.model_validate(document)
