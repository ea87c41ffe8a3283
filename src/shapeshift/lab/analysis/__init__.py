"""Analyses and figures, one file each: `compute()` returns the data, `plot()` draws them.

Data are frozen dataclasses; `document.save_data` and `load_data` keep them as JSON, so that a
figure can be drawn again without the models. A figure is a `matplotlib.figure.Figure` made without
pyplot, so that drawing one neither needs a display nor leaves global state. `lab.looks` holds
what all figures share.
"""
