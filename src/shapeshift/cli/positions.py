"""`shapeshift positions`: schemes, kinds and position ids."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from shapeshift.cli.options import usage_error
from shapeshift.cli.output import show, show_table

if TYPE_CHECKING:
    from shapeshift.positions import Representation, Scheme

NOTHING = "no position"


def positions(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A scheme or a kind to describe; one of your own is module:Class. `golden` writes"
            " golden vectors.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the golden vectors.  [default: golden]"),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Print which backend computes the attention of NAME, and why each one before it"
            " does not. The options below describe the attention.",
        ),
    ] = False,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option(help="Device; a GPU need not be here.  [default: cpu]"),
    ] = None,
    dtype: Annotated[
        Literal["fp32", "bf16", "fp16"] | None,
        typer.Option(help="Precision of the products.  [default: fp32]"),
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="In training, with gradients.")] = False,
    decode: Annotated[
        bool, typer.Option("--decode", help="A step of the decoder, with a cache.")
    ] = False,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="In a model that torch.compile compiles.")
    ] = False,
    dropout: Annotated[
        float | None, typer.Option(min=0, max=1, help="Dropout of attention.  [default: 0]")
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=1, max=65536, help="Tokens of a sentence.  [default: 64]")
    ] = None,
    no_kernels: Annotated[
        bool, typer.Option("--no-kernels", help="As on a CPU without our compiled kernels.")
    ] = False,
) -> None:
    """List the position representations, or describe one.

    Lists the schemes, the kinds of position representation, and the position ids. With a NAME, such
    as rope, describes what it does, its options, its cost, its exports and how to use it. The
    number of parameters is the one that it adds to transformer-base. With --explain, prints how its
    attention is computed in a layer of transformer-base instead.

    `shapeshift positions golden` writes what each kind computes into a folder, for an engine in
    another language to compare with: golden.json and golden.safetensors.
    """
    flags = {"train": train, "decode": decode, "compiled": compiled, "no_kernels": no_kernels}
    options: dict[str, Any] = {"device": device, "dtype": dtype, "dropout": dropout}
    options |= {"length": length} | {flag: True for flag, is_given in flags.items() if is_given}
    given = {key: value for key, value in options.items() if value is not None}
    if output is not None and name != "golden":
        raise usage_error("--output", "is the folder of `shapeshift positions golden`")
    if name == "golden":
        for option in (*(["explain"] if explain else []), *given):
            raise usage_error(_flag(option), "has no effect on `shapeshift positions golden`")
        from shapeshift.export.golden import write

        folder = output or Path("golden")
        show(f"wrote the vectors of {write(folder)} cases to {folder}")
        return
    if explain:
        if name is None:
            raise usage_error("--explain", "needs the NAME of a scheme or a kind, such as rope")
        if train and decode:
            raise usage_error("--decode", "excludes --train: gradients are of whole sentences")
        if no_kernels and device == "cuda":
            raise usage_error("--no-kernels", "has no effect on a GPU; leave one of them out")
        _explain(name, **given)
        return
    for option in given:
        raise usage_error(_flag(option), "describes an attention for --explain; add --explain")
    if name is not None:
        _describe(name)
    else:
        _list()


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _list() -> None:
    """Print the schemes, the kinds and the position ids."""
    from shapeshift.model import catalogue
    from shapeshift.positions import KINDS, POSITION_IDS, SCHEMES
    from shapeshift.positions.registry import find_kind, kind_names

    schemes = []
    for name, scheme in SCHEMES.items():
        described = str(scheme).removesuffix(", position ids absolute")
        schemes.append((name, described, f"{catalogue.count_parameters(*scheme.parts):,}"))
    places: dict[str, list[str]] = {}
    for cell in catalogue.cells():
        place = f"{cell.at} ({catalogue.count_parameters(cell):,})"
        places.setdefault(cell.kind, []).append(place)
    kinds = [(kind, x.summary, ", ".join(places[kind]), x.source) for kind, x in KINDS.items()]
    for kind in kind_names():
        if kind not in KINDS:  # with axes, and of installed packages
            own = find_kind(kind)
            kinds.append((kind, own.summary, ", ".join(own.build.places), own.source))
    position_ids = [(ids, entry.summary, entry.source) for ids, entry in POSITION_IDS.items()]
    for header, rows in (
        (("scheme", "kind at place", "parameters"), schemes),
        (("kind", "what it does", "places (parameters)", "source"), kinds),
        (("position ids", "what they are", "source"), position_ids),
    ):
        show_table(header, rows, numbers=False)
    show("shapeshift positions NAME describes one, with its options")


def _describe(name: str) -> None:
    """Print what a scheme, a kind or position ids do, and how a configuration names them."""
    from shapeshift import kernels
    from shapeshift.export.support import ENGINES, EXACT, by_engine, ids_of_tokens
    from shapeshift.model import ModelConfig, catalogue
    from shapeshift.positions import POSITION_IDS, Representation
    from shapeshift.positions.registry import find_kind

    scheme = _scheme(name)
    usage = f"position: {name}"
    if name in POSITION_IDS:
        part = "{kind: sinusoidal, place: embedding}"
        known = POSITION_IDS[name].options().items()
        needed = "".join(f", {key}: …" for key, x in known if x.default is x.empty)
        usage = f"position: {{name: mine, position_ids: {{name: {name}{needed}}}, parts: [{part}]}}"
    kinds = [] if name in POSITION_IDS else [part.kind for part in scheme.parts] or ["none"]
    show(f"{name}: {scheme}")
    ids = scheme.position_ids.name
    shown = (each for each in (*kinds, ids) if each != "absolute" or name == each)
    for title in dict.fromkeys(shown):
        entry = POSITION_IDS.get(title) or find_kind(title)
        show(f"\n{title}: {entry.summary} ({entry.source})\n")
        text = inspect.getdoc(entry.build) or ""
        if entry.build is Representation:  # the rest of which is for authors of kinds
            show(next(x for x in text.split("\n\n") if x.startswith("The kind `none`")) + "\n")
        else:
            show(re.split(r"\n(?:Raises|Attributes):", text)[0].rstrip() + "\n")
        options = [
            option if parameter.default is parameter.empty else f"{option}={parameter.default}"
            for option, parameter in entry.options().items()
        ]
        show(f"options: {', '.join(options) or 'none'}")
    if any(find_kind(kind).build.num_axes > 1 for kind in kinds):
        show(
            "\nits positions have several axes, so it is for a model of your own:"
            f" shapeshift.positions.get({name!r}, head_dim=64)"
        )
        return
    if refused := ids_of_tokens(scheme):
        engines = f"; {', '.join(ENGINES)}: refused: {refused}"
    else:
        engines = "".join(
            f", {engine}" if said == EXACT and engine != ENGINES[-1] else f"; {engine}: {said}"
            for engine, said in by_engine(scheme, ModelConfig(size="base")).items()
        )
    show(
        f"\nparameters added to transformer-base: {catalogue.count_parameters(*scheme.parts):,}\n"
        f"exports to torch.compile, torch.export{engines}\n"
        f"attention on this CPU: {kernels.describe()}\n"
        f"which backend computes it: shapeshift positions {name} --explain\n"
        f"in a configuration: {usage}\n"
        "how to choose one: docs/guides/choosing.md"
    )


def _scheme(name: str) -> Scheme:
    """Return a scheme, or position ids with sinusoidal positions."""
    from shapeshift.positions import POSITION_IDS, Part, PositionIds, Scheme
    from shapeshift.positions.scheme import find_scheme

    if name in POSITION_IDS:
        return Scheme(PositionIds(name), (Part("sinusoidal", "embedding"),))
    return find_scheme(name)


def _explain(
    name: str,
    *,
    device: str = "cpu",
    dtype: str = "fp32",
    dropout: float = 0.0,
    length: int = 64,
    train: bool = False,
    decode: bool = False,
    compiled: bool = False,
    no_kernels: bool = False,
) -> None:
    """Print which backend serves for each attention of a scheme or a kind, and why those before it
    do not."""
    import torch

    from shapeshift.attention import explain
    from shapeshift.positions import SCHEMES, Part, Scheme
    from shapeshift.positions.registry import find_kind

    scheme = _scheme(name)
    parts = [part for part in scheme.parts if part.kind == name]
    if name not in SCHEMES and parts:  # a kind, at all of its places in attention
        build = find_kind(name).build
        stacks = "decoder" if build.causal_only else "both"
        places = [place for place in build.places if place != "embedding"] or build.places
        scheme = Scheme(parts=tuple(Part(name, place, stacks) for place in places))
    precisions = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    found: dict[str, list[str]] = {}
    attentions = [*_attentions(scheme, decode=decode)]
    if name not in SCHEMES:  # where the kind acts, if it does in an attention
        attentions = [x for x in attentions if not x[0].endswith(NOTHING)] or attentions
    for where, position in attentions:
        answer = explain(
            position,
            device=device,
            dtype=precisions[dtype],
            train=train,
            decode=decode,
            compiled=compiled,
            dropout_p=dropout,
            length=length,
            with_kernels=False if no_kernels else None,
        )
        found.setdefault(str(answer), []).append(where)
    show(f"{name}: {str(scheme).removesuffix(', position ids absolute')}")
    texts = {
        "training" if train else "a step of decoding" if decode else "evaluation": True,
        "on a GPU (NVIDIA, from Ampere on)" if device == "cuda" else "on a CPU": True,
        "without compiled kernels": no_kernels,
        "compiled by torch.compile": compiled,
        f"in {dtype}": True,
        f"{length:,} tokens": True,
        f"dropout of attention {dropout:g}": dropout > 0,
    }
    show(", ".join(text for text, is_shown in texts.items() if is_shown))
    for explanation, places in found.items():
        show("\n" + "\n".join(places))
        show(re.sub("^", "  ", explanation, flags=re.MULTILINE))


def _attentions(scheme: Scheme, *, decode: bool) -> Iterator[tuple[str, Representation]]:
    """Yield each distinct attention of transformer-base: a description, and its position."""
    from shapeshift.model import ModelConfig
    from shapeshift.positions import Scheme, Stack, place
    from shapeshift.positions.base import AT_ATTENTION

    def acting(position: Representation) -> str:
        kinds = [kind for kind in position.kinds() if any(map(kind.acts, AT_ATTENTION))]
        return " + ".join(type(kind).__name__ for kind in kinds) or NOTHING

    model = ModelConfig(size="base")
    for stack, num_layers in model.depths.items():
        if decode and stack == "encoder":
            continue
        placed = place(
            Scheme(parts=scheme.parts), Stack(stack, model.dim, model.num_heads, num_layers)
        )
        attentions = {"self-attention": placed.self_attention}
        if stack == "decoder":
            attentions["cross-attention"] = placed.cross_attention
        for attention, positions in attentions.items():
            numbered = enumerate(map(acting, positions))
            for what, same in groupby(numbered, key=lambda pair: pair[1]):
                first, *others = (n for n, _ in same)
                layers = ""
                if len(others) + 1 < num_layers:
                    last = f" to {others[-1]}" if others else ""
                    layers = f", layer{'s' * bool(others)} {first}{last}"
                yield f"{stack} {attention}{layers}: {what}", positions[first]
