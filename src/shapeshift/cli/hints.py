"""Usage errors that name what works: a setting in the wrong place, another toolkit's option."""

from __future__ import annotations

import re
from itertools import pairwise
from os.path import exists
from typing import Any

from typer.core import TyperCommand

_SETTING = re.compile(r"(data|model|position|training|decoding|evaluation)(\.[\w.]+)?=")


class Subcommand(TyperCommand):
    """A subcommand whose usage errors explain how to give a setting."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage, with the names of arguments as they are: versions of Typer bracket
        them in ways of their own."""
        given = (each for each in self.params if each.param_type_name == "argument")
        return ["[OPTIONS]", *(each.metavar or str(each.name).upper() for each in given)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; answer a setting or a foreign option with what works here."""
        # As arguments, as `--set`, or not at all.
        takes = next((each for each in self.params if each.name == "overrides"), None)
        as_arguments = takes is not None and takes.param_type_name == "argument"
        for before, text in pairwise(["", *args]):
            is_setting = _SETTING.match(text) and not before.startswith("-") and not exists(text)
            if is_setting and not as_arguments:
                remedy = "this command has none" if takes is None else f"give it as --set {text}"
                ctx.fail(f"{text!r} is a setting; {remedy}")
        first = self.params[0].name if self.params else None
        if first == "config" and args and _SETTING.match(args[0]):
            ctx.fail(f"name the configuration file before the setting {args[0]!r}")
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # By its name: some versions of Typer have their own copy of click.
            if type(error).__name__ != "NoSuchOption":
                raise
            option = str(getattr(error, "option_name", ""))
            remedy = _setting_for(option, given, takes, as_arguments)
            if not remedy:
                raise
            raise ctx.fail(f"no such option {option}; {remedy}") from None


def _setting_for(option: str, args: list[str], takes: Any, as_arguments: bool) -> str:
    """Return how to give the setting that an unknown option asks for, or nothing."""
    if takes is None or not option.startswith("--"):
        return ""
    if option == "--set":
        return "settings are given without it: KEY=VALUE"
    from shapeshift.config import Config
    from shapeshift.config_errors import find_key
    from shapeshift.foreign_names import NOT_HERE

    sections = ("data", "training", "model") if as_arguments else ("decoding", "evaluation")
    name = option.strip("-").replace("-", "_")
    key = find_key(name, Config, sections)
    if key is None:
        return NOT_HERE.get(name, "")
    after = args[args.index(option) + 1 :] if option in args else []
    value = after[0] if after and not after[0].startswith("-") else "VALUE"
    return f"give a setting: {'' if as_arguments else '--set '}{key}={value}"
