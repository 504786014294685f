"""The shared libraries of the installed torch: where they are, and opening them to look symbols up."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.facts.values import Unknown, Value
from envdoctor.observe.environment.files import because_of
from envdoctor.observe.environment.layout import Layout

if TYPE_CHECKING:
    from envdoctor.observe.binaries.elf_file import ElfFile
    from envdoctor.observe.environment.files import Files

__all__ = ["OF_TORCH", "TorchLibraries", "find_torch_libraries", "open_torch_libraries"]

#: libc10.so, libtorch_cuda.so, libtorch_cuda_cu.so; not libtorchaudio.so, which is torchaudio's own.
OF_TORCH = re.compile(r"lib(?:c10|torch)(?:_[a-z_]{1,40})?\.so\Z")
_CORE = ("libc10.so", "libtorch_cpu.so")


class TorchLibraries(NamedTuple):
    """Opened libraries and their names. ``lacks`` says why nothing can be looked up in them; None when it can."""

    opened: list[ElfFile]
    names: frozenset[str]
    lacks: str | None


def find_torch_libraries(layout: Layout, missing: Value | None) -> dict[str, str] | str:
    """Paths of torch's libraries by name; or why there is nothing to compare with.

    ``missing`` is the fact ``torch.missing_files``.
    """
    files = layout.files
    home = next(
        (folder for folder in layout.site_packages if files.is_file(os.path.join(folder, "torch", "version.py"))), None
    )
    if home is None:
        return "there is no torch to compare with"
    if isinstance(missing, tuple) and missing and not isinstance(missing, Unknown):  # which is a tuple too
        return "libraries of torch itself are missing"
    folders = [os.path.join(home, "torch", "lib")]
    if layout.kind == "conda":
        folders.append(os.path.join(layout.prefix, "lib"))
    paths: dict[str, str] = {}
    for folder in folders:
        for name in files.names_or_none(folder):
            if OF_TORCH.match(name):
                paths.setdefault(name, os.path.join(folder, name))
    lacking = [name for name in _CORE if name not in paths]
    return f"torch/lib has no {lacking[0]}" if lacking else paths


def open_torch_libraries(paths: Mapping[str, str] | str, files: Files) -> TorchLibraries:
    """Open what :func:`find_torch_libraries` found. The caller closes them."""
    from envdoctor.observe.binaries.elf_file import ElfError, ElfFile

    if isinstance(paths, str):
        return TorchLibraries([], frozenset(), paths)
    opened: list[ElfFile] = []
    # Most symbols are of libtorch_cpu and libc10.
    for name in sorted(paths, key=lambda name: (name not in _CORE[::-1], name)):
        try:
            opened.append(ElfFile(files.open(paths[name])))
        except (ElfError, OSError) as error:
            for library in opened:
                library.close()
            reason = because_of(error) if isinstance(error, OSError) else str(error)
            return TorchLibraries([], frozenset(), f"torch/lib/{name} cannot be read: {reason}")
    return TorchLibraries(opened, frozenset(paths), None)
