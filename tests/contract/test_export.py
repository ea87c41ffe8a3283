"""Every scheme can be exported: encoder and decoder for any batch and length, in evaluation."""

from io import BytesIO

import torch
import torch._dynamo.exc
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export, load, save

from shapeshift.attention.backends import sdpa
from shapeshift.model import Transformer
from shapeshift.positions import SCHEMES

from .conftest import close


class Encoder(nn.Module):
    """`encode` as a forward pass."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, source):
        return self.model.encode(source)


class Decoder(nn.Module):
    """`decode` and the logits as a forward pass."""

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, target_input, memory):
        return self.model.project(self.model.decode(target_input, memory))


def exported(
    model: Transformer, source: Tensor, target: Tensor, longest: int
) -> tuple[ExportedProgram, ExportedProgram]:
    B, S, T = (Dim(name, max=longest) for name in "BST")
    encoder = export(Encoder(model), (source,), dynamic_shapes=({0: B, 1: S},))
    memory = model.encode(source)
    # In evaluation all sequences share their positions, unless these depend on the tokens.
    pos = {1: S} if memory.pos.shape[0] == 1 else {0: B, 1: S}
    assert (0 in pos) == model.target.position_ids.reads_tokens
    decoder = export(
        Decoder(model),
        (target, memory),
        dynamic_shapes=({0: B, 1: T}, [{0: B, 1: S}, pos, {0: B, 3: S}]),
    )
    return encoder, decoder


@torch.no_grad()
def test_programs_serve_other_batches_and_lengths(compiled_scheme, make_model, logits, sentences):
    model = make_model(compiled_scheme, encoder_layers=1, decoder_layers=1)
    source, target = sentences
    encoder, decoder = (
        program.module() for program in exported(model, source, target[:, :7].contiguous(), 40)
    )
    larger = torch.cat((source.flip(0), source)), target.repeat(2, 1)
    as_long = source[:2, :6], target[:2, :6]
    for batch in (larger, (source[:2, :6], target[:2, :11]), as_long):
        close(decoder(batch[1], encoder(batch[0])), logits(model, *batch))


@torch.no_grad()
def test_a_program_serves_short_and_long_sentences(make_model, logits, sentences):
    model = make_model(SCHEMES["ape"], encoder_layers=1, decoder_layers=1)
    border = max(sdpa.FUSED_FROM.values())
    source, target = sentences
    encoder, decoder = (program.module() for program in exported(model, source, target, 2 * border))
    source, target = source[:1].repeat(3, border // 9 + 1), target.repeat(1, border // 32 + 1)
    close(decoder(target, encoder(source)), logits(model, source, target))


@torch.no_grad()
def test_saved_programs_compute_the_same(make_model, logits, sentences):
    model = make_model(SCHEMES["rope"], encoder_layers=1, decoder_layers=1)
    source, target = sentences
    opened = []
    for program in exported(model, source, target, 40):
        file = BytesIO()
        save(program, file)
        file.seek(0)
        opened.append(load(file).module())
    encoder, decoder = opened
    close(decoder(target, encoder(source)), logits(model, source, target))
