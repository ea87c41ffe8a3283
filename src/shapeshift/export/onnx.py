"""Models as ONNX programs, which run in onnxruntime without PyTorch.

encoder.onnx     source (B, S), ids with `</s>`, padded with 0 on the right
                 -> mask (B, 1, 1, S), positions (1, S), and of each layer of the decoder the keys
                 and values of the source, (B, H, S, E)
decoder.onnx     tokens (B, T), those outputs, and of each layer the keys and values of the tokens
                 before, (B, H, P, E), where P is 0 at first; also the state (B, 1, P, F) of a kind
                 that has one
                 -> logits (B, T, V), and the keys, values and states of all tokens
export.json, subwords/, …     see `folder`

B, S, T and P are free.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim

from shapeshift._system.errors import ShapeshiftError, require
from shapeshift.data.subwords import BOS, EOS
from shapeshift.decoding.capacity import Capacity, capacity
from shapeshift.decoding.scoring import evaluating
from shapeshift.model import Memory, Transformer
from shapeshift.model.attention import Attention
from shapeshift.model.cache import SourceKeyValues

from .folder import Report, Trained, new_folder
from .parity import OwnEngine, check
from .support import EXACT, refuse_ids_of_tokens, unsupported_by_onnx

OPSET = 18
NEEDED = ("onnx", "onnxruntime", "onnx", "onnxscript")  # the extra, and its modules
Arrays = list[NDArray[Any]]


def export(trained: Trained, target: Path) -> Report:
    """Write a model as ONNX, and check that onnxruntime computes the same.

    Raises:
        ShapeshiftError: onnx or onnxruntime is not installed; position ids depend on the tokens, or
            ONNX lacks an operator of a kind; the folder holds something; the check fails; the disk
            refuses.
    """
    runtime, model = require(*NEEDED), trained.model
    refuse_ids_of_tokens(trained.position.scheme)
    if reason := unsupported_by_onnx(trained.position.scheme):
        raise ShapeshiftError(f"this model cannot be exported exactly: {reason}")
    own = capacity(model)
    with new_folder(target) as folder:
        folder.mkdir()
        with evaluating(model):
            write(model, folder)
        exported = OnnxModel(folder, own)
        parity = check(model, OwnEngine(exported), own, trained.longest)
        report = Report(
            f"onnxruntime {runtime.__version__}",
            "onnxruntime.InferenceSession",
            EXACT,
            own,
            parity,
            trained.weights_sha256,
            checkpoint=trained.checkpoint,
        )
        report.save(folder, trained.subword_models)
    return report


def write(model: Transformer, folder: Path) -> None:
    """Write `encoder.onnx` and `decoder.onnx` of a model in evaluation mode.

    They are traced once; batch and lengths of the sample are larger than 1, so that none of them is
    taken for a constant.
    """
    B, S, T, P = (Dim(name) for name in "BSTP")
    source = torch.tensor([[5, 6, 7, EOS], [6, EOS, 0, 0], [5, EOS, 0, 0]])
    tokens = torch.tensor([[BOS, 5]] * len(source))
    encoder, decoder = _Encoder(model), _Decoder(model)
    mask, pos, *cross = encoder(source)
    for layer in model.decoder:
        for kind in cast(Attention, layer.cross_attention).position.kinds():
            if kind.acts("state"):
                name = type(kind).__name__
                raise ShapeshiftError(
                    f"ONNX programs keep no state of {name} at cross; use it at self"
                )
    kept = decoder.kept()
    past = [torch.zeros(len(source), heads, 3, width) for heads, width in kept.values()]
    names = [f"{what}_{n}" for n in range(len(model.decoder)) for what in ("keys", "values")]
    memory = ["mask", "positions", *(f"source_{name}" for name in names)]
    by_pair = [{0: B, 2: S}] * len(cross), [{0: B, 2: P}] * len(past)
    programs: dict[str, tuple[Any, ...]] = {
        "encoder": (encoder, (source,), ({0: B, 1: S},), ["source"], memory),
        "decoder": (
            decoder,
            (tokens, mask, pos, cross, past),
            ({0: B, 1: T}, {0: B, 3: S}, {1: S}, *by_pair),
            ["tokens", *memory, *(f"past_{name}" for name in kept)],
            ["logits", *kept],
        ),
    }
    logging.disable(logging.WARNING)  # about names of dimensions, and packages it does without
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, (module, sample, shapes, inputs, outputs) in programs.items():
                program = torch.onnx.export(
                    module.eval(), sample, dynamic_shapes=shapes, dynamo=True, verbose=False,
                    opset_version=OPSET, input_names=inputs, output_names=outputs,
                )  # fmt: skip
                assert program is not None, "with dynamo=True there is a program"
                program.save(folder / f"{name}.onnx")
    finally:
        logging.disable(logging.NOTSET)


class _Encoder(nn.Module):
    """The encoder and each decoder layer's keys and values of its output."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        memory = self.model.encode(source)
        outputs = [memory.mask, memory.pos]
        for layer in self.model.decoder:
            attention = cast(Attention, layer.cross_attention)
            outputs += attention.keys_and_values(memory.hidden, memory.pos)
        return tuple(outputs)


class _Decoder(nn.Module):
    """One call of the decoder: some new tokens, given the keys and values of earlier ones."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def kept(self) -> dict[str, tuple[int, int]]:
        """Return what the caches of all layers keep: a name → heads and channels."""
        found: dict[str, tuple[int, int]] = {}
        for n, layer in enumerate(self.model.decoder):
            attention = cast(Attention, layer.attention)
            x, pos = torch.zeros(1, 1, attention.out.in_features), torch.zeros(1, 1).long()
            kept = dict(zip(("keys", "values"), attention.keys_and_values(x, pos), strict=True))
            if attention.position.acts("state"):
                kept["state"] = attention.position("state", x, pos).unsqueeze(1)
            found |= {f"{name}_{n}": (x.shape[1], x.shape[3]) for name, x in kept.items()}
        return found

    def forward(
        self, tokens: Tensor, mask: Tensor, pos: Tensor, cross: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        before, earlier = past[0].shape[2], iter(past)
        x, pos_q = self.model.target(tokens, start=before)
        pos_k = self.model.target.position_ids(1, before + tokens.shape[1], device=x.device)
        nothing = Memory(x[:, :0], pos, mask)  # all keys of the source are there
        present = []
        for n, layer in enumerate(self.model.decoder):
            own: Any = _Growing(earlier)
            source = SourceKeyValues()
            source.append(*cross[2 * n : 2 * n + 2])
            x = layer(x, pos_q, pos_k, nothing, (own, source))
            present += own.kept
        return (self.model.project(self.model.decoder_norm(x)), *present)


class _Growing:
    """A `model.cache.KeyValues` that concatenates instead of writing into a buffer; takes what it
    continues from an iterator."""

    mask: Tensor | None = None  # no place is free

    def __init__(self, earlier: Iterator[Tensor]):
        self._earlier = earlier

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        self.kept = tuple(torch.cat((next(self._earlier), x), dim=2) for x in new)
        return self.kept


class OnnxModel:
    """An exported model in onnxruntime, with the methods of `Transformer` that decoding calls."""

    def __init__(self, folder: Path, capacity: Capacity):
        runtime = require(*NEEDED)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.capacity = capacity
        self._encoder, self._decoder = (
            runtime.InferenceSession(
                folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"]
            )
            for name in ("encoder", "decoder")
        )

    def encode(self, source: Tensor) -> Arrays:
        """Return the outputs of the encoder."""
        outputs: Arrays = self._encoder.run(None, {"source": source.numpy()})
        return outputs

    def decode(self, target_input: Tensor, memory: Arrays) -> Tensor:
        """Return the logits `(B, T, V)` of `target_input (B, T)`."""
        return _State(self._decoder, memory).extend(target_input)

    def project(self, logits: Tensor) -> Tensor:
        """Return `hidden` unchanged: the decoder has already projected its output."""
        return logits

    def start(self, source: Tensor, beam: int) -> _State:
        """As `Transformer.start`."""
        state = _State(self._decoder, self.encode(source))
        state.reorder(torch.arange(len(source)).repeat_interleave(beam))
        return state


class _State:
    """Incremental decoding; see `decoding.search.Stepper`."""

    def __init__(self, decoder: Any, memory: Arrays):
        self._decoder, self._memory = decoder, memory
        inputs = {each.name: each.shape for each in decoder.get_inputs()}
        past = (shape for name, shape in inputs.items() if name.startswith("past_"))
        self._names = [*inputs]
        self._past = [np.zeros((len(memory[0]), H, 0, E), np.float32) for _, H, _, E in past]

    def extend(self, tokens: Tensor) -> Tensor:
        """Return the logits `(B, T, V)` of `tokens (B, T)`."""
        given = zip(self._names, (tokens.numpy(), *self._memory, *self._past), strict=True)
        logits, *self._past = self._decoder.run(None, dict(given))
        return torch.from_numpy(logits)

    def step(self, tokens: Tensor) -> Tensor:
        return self.extend(tokens[:, None])[:, -1]

    def reorder(self, rows: Tensor) -> None:
        chosen = rows.numpy()
        mask, pos, *cross = self._memory
        self._memory = [mask[chosen], pos, *(x[chosen] for x in cross)]
        self._past = [x[chosen] for x in self._past]
