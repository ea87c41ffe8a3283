"""Models that other programs run, for `against`: token ids in, logits out. They are no modules, so
that nothing else of them is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError, reason, require

SINGLE, HALF, EIGHT_BITS = 2.0**-24, 2.0**-11, 2.0**-8
"""Relative rounding of float32, of float16, and of bfloat16 and types with fewer bits."""


@dataclass(frozen=True)
class Engine:
    """A model in another program.

    Attributes:
        path: of its file or folder.
        run: returns logits or log-probabilities `(B, T, V)` of ids `(B, T)`; those of an
            encoder-decoder of sources `(B, S)` and targets `(B, T)`.
        is_seq2seq: whether it is an encoder-decoder.
        precision: relative rounding of its weights.
    """

    path: Path
    run: Callable[..., Tensor]
    is_seq2seq: bool = False
    precision: float = SINGLE

    def logits(self, *ids: Tensor) -> Tensor:
        """Call `run`.

        Raises:
            ShapeshiftError: it fails.
        """
        try:
            return self.run(*ids).float()
        except ShapeshiftError:
            raise
        except Exception as error:  # of any class
            size = ids[-1].shape[1]
            raise ShapeshiftError(
                f"fails for {size} tokens ({reason(error)}); give a smaller max_length",
                path=self.path,
            ) from error


def open_engine(path: str | Path, max_length: int = 300) -> Engine | None:
    """Open a model for another program; None if `path` is none of these:

    - a GGUF file, which llama-cpp-python runs;
    - an ONNX file of a causal model, with inputs `input_ids` and optionally `attention_mask`,
      `position_ids` and `past_…`, and an output `logits`; a folder with such a `model.onnx`; or the
      folder of `shapeshift export --to onnx`;
    - a folder of CTranslate2 with an encoder-decoder or a decoder.

    Args:
        path: a file or a folder.
        max_length: tokens of the longest sequence.

    Raises:
        ShapeshiftError: the program is not installed, or cannot open the model.
    """
    path = Path(path)
    try:
        if path.suffix == ".gguf" and path.is_file():
            return _gguf(path, max_length)
        for file in (path, path / "model.onnx", path / "decoder.onnx"):
            if file.suffix == ".onnx" and file.is_file():
                return _onnx(file)
        if (path / "model.bin").is_file() and (path / "config.json").is_file():
            return _ctranslate2(path)
    except ShapeshiftError:
        raise
    except Exception as error:  # a stranger's file may raise any
        raise ShapeshiftError(
            f"cannot be opened ({reason(error)}); export the model again", path=path
        ) from error
    return None


def _gguf(path: Path, max_length: int) -> Engine:
    try:
        llama_cpp: Any = import_module("llama_cpp")
    except ImportError as error:
        raise ShapeshiftError(
            f"this needs llama_cpp ({reason(error)}); pip install llama-cpp-python", path=path
        ) from error
    model = llama_cpp.Llama(
        str(path), n_ctx=max_length, n_gpu_layers=0, n_threads=torch.get_num_threads(),
        logits_all=True, type_k=0, type_v=0, verbose=False,  # 0: a cache in float32
    )  # fmt: skip

    def run(ids: Tensor) -> Tensor:
        rows = []
        for row in ids.tolist():
            model.reset()
            model.eval(row)
            rows.append(torch.tensor(model.scores[: len(row)]))
        return torch.stack(rows)

    file_type = model.metadata.get("general.file_type", "0")
    return Engine(path, run, precision={"0": SINGLE, "1": HALF}.get(file_type, EIGHT_BITS))


def _onnx(path: Path) -> Engine:
    runtime: Any = require("onnx", "onnxruntime")
    np: Any = require("onnx", "numpy")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()

    def load(file: Path) -> Any:
        return runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def logits(session: Any, ids: Tensor, known: dict[str, Any]) -> Tensor:
        types = {"int64": np.int64, "int32": np.int32, "float": np.float32, "float16": np.float16}
        known = {
            "input_ids": ids.numpy(),
            "tokens": ids.numpy(),
            "attention_mask": np.ones(ids.shape),
            "position_ids": np.arange(ids.shape[1])[None].repeat(len(ids), axis=0),
            **known,
        }
        given = {}
        for each in session.get_inputs():
            value = known.get(each.name)
            if value is None and each.name.startswith("past_"):  # nothing is cached
                free = [size if isinstance(size, int) else 0 for size in each.shape[1:]]
                value = np.zeros((len(ids), *free))
            if value is None:
                raise ShapeshiftError(
                    f"has an input {each.name}, and `check` gives input_ids, attention_mask,"
                    " position_ids and past_… alone; export it without this input",
                    path=path,
                )
            kind = types.get(each.type.removeprefix("tensor(").removesuffix(")"))
            given[each.name] = value if kind is None else value.astype(kind)
        return torch.from_numpy(session.run(["logits"], given)[0])

    folder = path.parent
    if path.name in ("encoder.onnx", "decoder.onnx") and (folder / "encoder.onnx").is_file():
        encoder, decoder = (load(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
        names = [each.name for each in encoder.get_outputs()]

        def run(source: Tensor, target: Tensor) -> Tensor:
            memory = encoder.run(None, {"source": source.numpy()})
            return logits(decoder, target, dict(zip(names, memory, strict=True)))

        return Engine(folder, run, is_seq2seq=True)
    session = load(path)
    [kind] = [each.type for each in session.get_outputs() if each.name == "logits"] or [None]
    if kind is None:
        raise ShapeshiftError("has no output logits; export a causal language model", path=path)
    precision = SINGLE if kind == "tensor(float)" else HALF
    return Engine(path, lambda ids: logits(session, ids, {}), precision=precision)


def _ctranslate2(folder: Path) -> Engine:
    ctranslate2: Any = require("ctranslate2", "ctranslate2")
    np: Any = require("ctranslate2", "numpy")
    threads: Any = {"intra_threads": torch.get_num_threads()}
    with (folder / "model.bin").open("rb") as file:
        is_decoder = b"TransformerDecoder" in file.read(40)  # the name of its specification
    if is_decoder:
        model = ctranslate2.Generator(str(folder), **threads)

        def run(*ids: Tensor) -> Tensor:
            return torch.tensor(np.array(model.forward_batch(ids[0].tolist())))

    else:
        files = {}
        for each in filter(Path.is_file, folder.iterdir()):
            with each.open("rb") as content:
                files[each.name] = content.read()
        # Neither side gets a token that the other model does not get.
        added = {"add_source_bos": False, "add_source_eos": False, "decoder_start_token": None}
        config = {**json.loads(files["config.json"]), **added}
        files["config.json"] = json.dumps(config).encode()
        model = ctranslate2.Translator(str(folder), files=files, **threads)
        source_pieces, target_pieces = (
            json.loads(files.get(f"{side}_vocabulary.json") or files["shared_vocabulary.json"])
            for side in ("source", "target")
        )

        def run(*ids: Tensor) -> Tensor:
            source, target = (
                [[pieces[n] for n in row] for row in side.tolist()]
                for side, pieces in zip(ids, (source_pieces, target_pieces), strict=True)
            )
            results = model.translate_batch(
                source, target, beam_size=1, min_decoding_length=0, max_input_length=0,
                max_decoding_length=len(target[0]), return_logits_vocab=True,
            )  # fmt: skip
            steps = [[np.array(step).reshape(-1) for step in x.logits[0]] for x in results]
            return torch.tensor(np.array(steps))

    precision = {"float32": SINGLE, "float16": HALF}.get(model.compute_type, EIGHT_BITS)
    return Engine(folder, run, not is_decoder, precision)
