"""The argument MODEL of commands that take a model of any library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from shapeshift.run.folder import Run


def load_model(name: str) -> tuple[nn.Module, Run | None]:
    """Return the model that the user names, and its run if it has one: the folder of a run,
    `module:factory`, or a name or folder of Hugging Face."""
    from shapeshift._system.errors import ShapeshiftError
    from shapeshift._system.own_modules import find, is_own

    path = Path(name)
    if (path / "config.yaml").exists():
        from shapeshift.run.folder import load_run

        run = load_run(name)
        return run.model(), run
    if is_own(name) and not path.exists():
        factory = find(name, "function")
        try:
            return factory(), None
        except (TypeError, ValueError) as error:
            raise ShapeshiftError(
                f"no function {name!r} without arguments returns a model: {error}"
            ) from error
    return _of_hugging_face(name), None


def _of_hugging_face(name: str) -> nn.Module:
    """Return the model of a name or folder of Hugging Face."""
    from shapeshift._system.errors import ShapeshiftError, reason, require

    path = Path(name)
    if path.is_file():
        raise ShapeshiftError(
            "expected the folder of a model, got a file; check --against takes files of GGUF and"
            " ONNX",
            path=path,
        )
    # Names of the Hub are NAME or OWNER/NAME.
    is_file = path.suffix in (".gguf", ".onnx")
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1 or path.parent.is_dir()
    if not path.exists() and (is_file or ("/" in name and is_path)):
        raise ShapeshiftError(f"no such {'file' if is_file else 'folder'}", path=path)
    transformers = require("hf", "transformers")
    import shapeshift.export.huggingface  # noqa: F401  registers our classes
    from shapeshift._system.files import refuse_irregular

    refuse_irregular(path)
    settings: dict[str, Any] = {}
    try:
        settings, _ = transformers.PretrainedConfig.get_config_dict(name)
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        kind = _auto_class(config)
        if kind is not None:
            return kind.from_pretrained(name, trust_remote_code=False)  # type: ignore[no-any-return]
    except Exception as error:  # a stranger's files may raise any of transformers, or of pickle
        why = reason(error)
        key = error.args[0] if isinstance(error, KeyError) and error.args else None
        if key is not None and (setting := _setting(settings, key)):
            why = f"transformers does not know {setting}={key!r} of its config.json"
        raise ShapeshiftError(
            f"{name!r} is neither the folder of a run, nor module:factory, nor a model of Hugging"
            f" Face that reads text: {why}"
        ) from error
    raise ShapeshiftError(
        "transformers has no causal, masked or encoder-decoder model, and none of text and images,"
        f" for the model_type {config.model_type!r} of {name!r}"
    )


def _setting(settings: Mapping[str, Any], value: Any) -> str | None:
    """Return the name of a setting with this value, with dots if it is in others."""
    for name, each in settings.items():
        if each == value:
            return name
        if isinstance(each, Mapping) and (inner := _setting(each, value)):
            return f"{name}.{inner}"
    return None


def _auto_class(config: Any) -> Any:
    """Return the auto class that opens the model of a configuration: the first that has the class
    in `architectures`, or else the first that has any class for it and fits. None if none has."""
    import transformers

    is_seq2seq, is_decoder = config.is_encoder_decoder, getattr(config, "is_decoder", False)
    fits: dict[Any, bool] = {
        transformers.AutoModelForSeq2SeqLM: is_seq2seq,
        # BERT sees later tokens unless its configuration says otherwise.
        transformers.AutoModelForMaskedLM: not (is_seq2seq or is_decoder),
        # The causal classes of Qwen3.5 and Llama 4 open the language model alone.
        transformers.AutoModelForImageTextToText: not is_seq2seq,
        transformers.AutoModelForCausalLM: not is_seq2seq,
    }
    classes = {kind: kind._model_mapping.get(type(config), None) for kind in fits}
    available = [kind for kind, found in classes.items() if found is not None]
    names = config.architectures or []
    named = [kind for kind in available if classes[kind].__name__ in names]
    return next(iter(named or [kind for kind in available if fits[kind]]), None)
