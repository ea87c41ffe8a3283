"""Scores of translations: BLEU, chrF and COMET with signatures, by source length, as a document.

`metrics` computes scores, `scores` holds them in a JSON document, also for each bucket of source
lengths, `tables` lays it out. Nothing is imported here, so that naming the package costs nothing.
"""
