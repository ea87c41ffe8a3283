"""Builds the kernels in C: a shared library for each instruction set and dtype, which
`shapeshift.kernels` loads with ctypes. Everything else is in pyproject.toml.

The libraries are optional: where they cannot be built, the package computes in plain PyTorch. The
compiler is `$CC`, else `cc`; `CC=false` builds none.
"""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

FOLDER = Path("src/shapeshift/kernels")
SOURCES = sorted(FOLDER.glob("*.[ch]"))
FLAGS = ["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
BF16 = [*AVX512, "-mavx512bf16"]
LIBRARIES = {  # which of them a processor takes: shapeshift/kernels/processor.py
    "x86_64": {
        "baseline-float32": [],
        "baseline-bfloat16": [],
        "avx2-float32": AVX2,
        "avx2-bfloat16": AVX2,
        "avx512-float32": AVX512,
        "avx512-bfloat16": AVX512,
        "avx512_bf16-bfloat16": BF16,
        "amx-bfloat16": [*BF16, "-mamx-tile", "-mamx-bf16"],
    },
    "aarch64": {"baseline-float32": [], "baseline-bfloat16": []},
}


class BuildKernels(build_ext):
    """Makes plain libraries, all at the same time, in place of Python's extension modules."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def get_ext_filename(self, fullname: str) -> str:
        return f"{Path(*fullname.split('.'))}.so"

    def build_extension(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        # `shapeshift.kernels` compares it with the sources that lie next to the library.
        digest = hashlib.sha256(b"".join(x.read_bytes() for x in SOURCES)).hexdigest()
        flags = [*FLAGS, *ext.extra_compile_args, f'-DSOURCES="{digest}"']
        compiler = shlex.split(os.environ.get("CC") or "cc")
        part = path.with_suffix(f".{os.getpid()}")
        command = [*compiler, *flags, "-o", str(part), *ext.sources, "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
            part.replace(path)
        except (OSError, subprocess.SubprocessError) as error:
            part.unlink(missing_ok=True)
            reason = getattr(error, "stderr", None) or error
            raise CompileError(f"no kernels {path.stem}: {reason}") from error


class PlatformWheel(bdist_wheel):
    """Tags a wheel whose libraries serve every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        *_, machine = super().get_tag()
        return "py3", "none", machine


def kernels() -> list[Extension]:
    here = LIBRARIES.get(platform.machine(), {}) if sys.platform == "linux" else {}
    return [
        Extension(
            f"shapeshift.kernels.{name}",
            [str(x) for x in SOURCES if x.suffix == ".c"],
            depends=[str(x) for x in SOURCES],
            extra_compile_args=[*flags, *["-DBF16"] * name.endswith("bfloat16")],
            optional=True,
        )
        for name, flags in here.items()
    ]


if __name__ == "__main__":
    setup(cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel}, ext_modules=kernels())
