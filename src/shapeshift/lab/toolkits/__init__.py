"""The baseline trained by other toolkits on the same prepared text (SHAPE, Table 7).

`export` writes the text, `fairseq` and `opennmt` each a toolkit's settings and command lines,
`commands` runs them, and `baseline` scores what comes out as our own translations are scored. The
toolkits run as programs of their own: nothing of theirs is imported.
"""
