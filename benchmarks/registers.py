"""Compile the GPU's kernels ahead of time; print registers, stack and shared memory.

    PYTHONPATH=.venv-triton python benchmarks/registers.py     # after: make test-triton

It needs Triton, not a GPU. What is on the stack did not fit into registers. Triton's
interpreter, which the tests use without a GPU, does not notice what fails to compile.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import torch
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from shapeshift.attention import gpu
from shapeshift.kernels import gpu as steps

TOOL = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
KERNELS = gpu._forward, gpu._backward_queries, gpu._backward_keys
NUMBERS = re.compile(r"H|Q|K|low|width|length|num|num_turns|\w+_[bhijt]|pos_[qk]_b")
TYPES = dict.fromkeys(("pos_q", "pos_k", "target", "places"), "*i64")
TYPES |= dict.fromkeys(("norms", "terms", "mask", "cos", "sin", "log_sums", "log_probs"), "*fp32")
TYPES |= dict.fromkeys(("scale", "confidence", "sign", "factor"), "fp32")
OTHERS = (
    (steps._cross_entropy, {"BLOCK": 4096, "REPLACES": True, "num_warps": 8}),
    *(
        (
            steps._rotate,
            {"E": 64, "PAIRS": 32, "WIDTH": 32, "REST": 64, "TOKENS": 16, "num_warps": 4}
            | {"HALVES": halves, "PLACED": True},
        )
        for halves in (True, False)
    ),
)


def compiled(kernel, heads: str, options: dict[str, object], capability: int):
    """Return a kernel compiled for heads of a type."""
    how = ("num_warps", "num_stages", "maxnreg")
    how = {name: options.pop(name) for name in how if name in options}
    constants = {x: options[x] for x in kernel.arg_names if x in options}
    signature, attributes = {}, {}
    for n, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        kind = "i32" if NUMBERS.fullmatch(name) else TYPES.get(name, f"*{heads}")
        signature[name] = kind
        if kind.startswith("*") or re.fullmatch(r"\w+_[bhijt]", name):
            attributes[n,] = [["tt.divisibility", 16]]
    places = {(kernel.arg_names.index(x),): value for x, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=attributes)
    return compile(source, target=GPUTarget("cuda", capability, 32), options=how)


def usage(kernel, heads: str, options: dict[str, object], capability: int) -> str:
    made = compiled(kernel, heads, options, capability)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        command = [TOOL, "--dump-resource-usage", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    registers, stack = (re.search(rf"{name}:(\d+)", done.stdout)[1] for name in ("REG", "STACK"))
    shared = made.metadata.shared / 1024
    return f"{registers} registers, {stack} B on the stack, {shared:.0f} KiB shared"


def main() -> None:
    print("of the forward pass, the queries' gradients, and the keys' and values'")
    for capability in (80, 90):
        for heads, dtype, all_rows in (
            ("bf16", torch.bfloat16, (33, 129)),
            ("fp32", torch.float32, (33,)),
        ):
            for num_rows in all_rows:
                q = torch.empty(2, 2, 100, 64, dtype=dtype)
                pos = torch.empty(1, 100, dtype=torch.int64)
                found = []
                for kernel in KERNELS:
                    _, options = gpu._arguments(q, q, q, pos, pos, -16, num_rows, True)
                    options |= {"BIASED": True, "SHARED": False, "SUMMED": True}
                    if kernel is gpu._backward_keys:
                        options |= {"M": options["N"], "N": options["M"]}
                    found.append(usage(kernel, heads, options, capability))
                print(f"sm_{capability}, {heads}, {num_rows} rows: {'; '.join(found)}", flush=True)
        for kernel, options in OTHERS:
            found = usage(kernel, "bf16", dict(options), capability)
            print(f"sm_{capability}, {kernel.__name__}: {found}", flush=True)


if __name__ == "__main__":
    main()
