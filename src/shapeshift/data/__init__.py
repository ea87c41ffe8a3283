"""Parallel text: corpora, subwords, the papers' recipes, the token store, batches.

`config` describes them, `prepare` builds them in one go, `batching` cuts them into batches.
Nothing is imported here, so that reading a configuration stays quick.
"""
