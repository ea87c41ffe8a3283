"""Trains the baseline with other toolkits on the same prepared text (SHAPE, Table 7).

`fairseq` and `opennmt` write a toolkit's settings and command lines. `baseline` writes the text,
runs the commands, and scores what comes out as our own translations are scored. The toolkits run
as programs of their own: nothing of theirs is imported.
"""
