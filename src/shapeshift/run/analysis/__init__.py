"""Analyses of a trained model, one file each: `compute` returns numbers, `measure` is the measure
of a grid."""
