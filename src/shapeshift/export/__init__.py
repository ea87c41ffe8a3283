"""Trained models for the engines that people deploy, with a check that both compute the same.

`support` says what an engine can compute exactly, `ctranslate2` converts, `parity` compares the
exported model with ours.
"""
