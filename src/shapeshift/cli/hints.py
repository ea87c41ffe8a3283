"""Usage errors that say how to give a setting: `--lr` is training.schedule.peak=VALUE."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class Subcommand(TyperCommand):
    """A subcommand whose error for another toolkit's option names the setting to use here."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage with unchanged names of arguments, because versions of Typer bracket
        them differently."""
        given = (each for each in self.params if each.param_type_name == "argument")
        return ["[OPTIONS]", *(each.metavar or str(each.name).upper() for each in given)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # By its name: some versions of Typer have their own copy of click.
            option = str(getattr(error, "option_name", ""))
            if type(error).__name__ == "NoSuchOption" and (setting := self._setting_for(option)):
                ctx.fail(f"no such option {option}; give a setting: {setting}=VALUE")
            raise

    def _setting_for(self, option: str) -> str | None:
        takes = next((each for each in self.params if each.name == "overrides"), None)
        if takes is None:
            return None
        from shapeshift.config import Config
        from shapeshift.config_errors import find_key

        as_arguments = takes.param_type_name == "argument"
        sections = ("data", "training", "model") if as_arguments else ("decoding", "evaluation")
        key = find_key(option.strip("-").replace("-", "_"), Config, sections)
        return key if as_arguments or key is None else f"--set {key}"
