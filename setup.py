"""The packages and the optional C++ library; everything else stands in pyproject.toml."""

from glob import glob

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py


class BuildPython(build_py):
    """`termchat._data` is this folder, and has data only: this file is no module of it."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Modules of a package, as (package, module, file)."""
        return [] if package == "termchat._data" else list(super().find_package_modules(package, package_dir))


setup(
    cmdclass={"build_py": BuildPython},
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
