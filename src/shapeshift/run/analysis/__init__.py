"""Analyses of a trained model, one file each: `compute` returns numbers, `measure` is a step of a
grid."""
