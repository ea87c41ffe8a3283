"""The configuration of a run: files, overrides and error messages."""

from .config import Config, load_config, parse_config

__all__ = ["Config", "load_config", "parse_config"]
