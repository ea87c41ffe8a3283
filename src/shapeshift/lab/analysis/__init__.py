"""Figures and tables, one file each: `compute()` returns the data, `plot()` draws a figure of them,
`tabulate()` lays them out as a table.

Data are frozen dataclasses; `document.save_data` and `load_data` keep them as JSON, so that a
figure can be drawn again without the models. A figure is a `matplotlib.figure.Figure` that was made
without pyplot, so that importing or drawing one neither needs a display nor leaves global state
behind.
"""
