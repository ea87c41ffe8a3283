"""Trained models as models of Hugging Face's transformers.

Importing this registers the classes, so that a folder written by `shapeshift export --to
huggingface` opens as any other:

    import shapeshift.export.huggingface
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained("runs/mine/huggingface")
    tokenizer = AutoTokenizer.from_pretrained("runs/mine/huggingface")
"""

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .model import ShapeshiftConfig, ShapeshiftForSeq2SeqLM

__all__ = ["ShapeshiftConfig", "ShapeshiftForSeq2SeqLM"]

AutoConfig.register(ShapeshiftConfig.model_type, ShapeshiftConfig)
AutoModelForSeq2SeqLM.register(ShapeshiftConfig, ShapeshiftForSeq2SeqLM)
