"""Analyses of a trained model, one file each: `compute()` returns the numbers."""
