"""Scores of translations: BLEU, chrF and COMET with signatures, by source length, as a document.

`metrics` computes scores, `lengths` computes BLEU for each bucket of source lengths, `scores`
holds both in a JSON document, `tables` lays it out. Nothing is imported here, so that naming the
package costs nothing.
"""
