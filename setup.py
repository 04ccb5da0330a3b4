"""The packages and the optional C++ library; everything else stands in pyproject.toml."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py


class BuildLibrary(build_ext):
    """Compiles the files side by side, the longest first; what was compiled before in this folder is kept."""

    def build_extensions(self) -> None:
        """A process a core: each is a run of the compiler."""
        compiler = self.compiler
        one_by_one = compiler.compile
        command = " ".join(getattr(compiler, "compiler_so_cxx", None) or compiler.compiler_so)
        headers = b"".join(Path(header).read_bytes() for header in self.extensions[0].depends)

        def compile_one(source: str, **options: Any) -> list[str]:
            """Objects lie in a folder that is named after all that they are made of."""
            made_of = f"{command} {options}".encode() + headers + Path(source).read_bytes()
            folder = Path("build", "objects", sha256(made_of).hexdigest()[:32])
            if not folder.exists():
                half = folder.with_suffix(f".{os.getpid()}")
                try:
                    one_by_one([source], output_dir=str(half), **options)
                    half.rename(folder)
                except OSError:
                    if not folder.exists():  # else somebody has done the same meanwhile
                        raise
                finally:
                    shutil.rmtree(half, ignore_errors=True)
            return [str(path) for path in folder.rglob("*") if path.is_file()]

        def compile_all(sources: list[str], output_dir: str, **options: Any) -> list[str]:
            by_size = sorted(sources, key=lambda source: "isa_" not in source)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return list(chain(*pool.map(lambda source: compile_one(source, **options), by_size)))

        compiler.compile = compile_all
        super().build_extensions()


class BuildPython(build_py):
    """`termchat._data` is this folder, and has data only: this file is no module of it."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Modules of a package, as (package, module, file)."""
        return [] if package == "termchat._data" else list(super().find_package_modules(package, package_dir))


setup(
    cmdclass={"build_py": BuildPython, "build_ext": BuildLibrary},
    # termchat._data is this folder (models.toml, themes): see package-dir in pyproject.toml.
    packages=[*find_packages(include=["termchat*", "engine*", "kernels*"]), "termchat._data"],
    ext_modules=[
        Extension(
            # Loaded with ctypes, so it works with every Python; the name only says where the file goes.
            "kernels.native._native",
            sources=sorted(glob("kernels/native/cpp/*.cpp")),
            depends=sorted(glob("kernels/native/cpp/*.hpp")),
            # No -march: instruction sets are chosen at run time. No contraction to fused multiply-adds: the
            # bits would depend on the machine.
            # No debugging information, which Python's own flags ask for: most of the file, and of the time.
            extra_compile_args=[
                *("-std=c++17", "-O3", "-g0", "-ffp-contract=off", "-fvisibility=hidden", "-pthread"),
            ],
            extra_link_args=["-pthread"],
            language="c++",
            # Without a compiler the install goes on, and the reference backend does the work.
            optional=True,
        )
    ],
)
