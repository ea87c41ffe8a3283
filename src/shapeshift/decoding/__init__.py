"""From source subwords to target text: search over a step function, forced scoring, translation.

`config` holds the settings, `search` greedy and beam search, `scoring` the probability that a
model gives to known references, `running` both of these in batches, and `translator` the way from
lines of text to lines of text.
"""
