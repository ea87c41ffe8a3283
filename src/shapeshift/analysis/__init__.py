"""Figures, one file each: `compute()` returns the data, `plot()` draws them.

A figure is a `matplotlib.figure.Figure` that was made without pyplot, so that importing or drawing
one neither needs a display nor leaves global state behind.
"""
