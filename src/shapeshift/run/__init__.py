"""Whole runs: from a configuration to a trained, tested model in one folder."""
