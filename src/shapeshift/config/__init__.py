"""The configuration of a run: reading files, overrides, and what is said of mistakes."""

from .config import Config, load_config, parse_config

__all__ = ["Config", "load_config", "parse_config"]
