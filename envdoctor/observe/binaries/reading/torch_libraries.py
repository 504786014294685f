"""Where the shared libraries of the installed torch are."""

from __future__ import annotations

import os

from envdoctor.facts.values import Value
from envdoctor.observe.locate.layout import Layout
from envdoctor.text.message import Message

_STEMS = ("libc10", "libtorch")
_LONGEST = 40
CORE = ("libc10.so", "libtorch_cpu.so")


def is_of_torch(library: str) -> bool:
    """Whether a library's name is one of torch's: libc10.so, libtorch_cuda.so, libtorch_cuda_cu.so; not
    libtorchaudio.so, which is torchaudio's own."""
    if not library.startswith(_STEMS) or not library.endswith(".so"):
        return False
    stem, _, rest = library[:-3].partition("_")
    plain = rest.replace("_", "").isalpha() and rest.islower() and len(rest) <= _LONGEST
    return stem in _STEMS and (plain or not rest)


def find_torch_libraries(layout: Layout, missing: Value | None) -> dict[str, str] | Message:
    """Paths of torch's libraries by name; or why there is nothing to compare with.

    ``missing`` is the fact ``torch.missing_files``.
    """
    files = layout.files
    home = next(
        (folder for folder in layout.site_packages if files.is_file(os.path.join(folder, "torch", "version.py"))), None
    )
    if home is None:
        return Message("there is no torch to compare with")
    if isinstance(missing, tuple) and missing:
        return Message("libraries of torch itself are missing")
    folders = [os.path.join(home, "torch", "lib")]
    if layout.kind == "conda":
        folders.append(os.path.join(layout.prefix, "lib"))
    paths: dict[str, str] = {}
    for folder in folders:
        for name in files.names_or_none(folder):
            if is_of_torch(name):
                paths.setdefault(name, os.path.join(folder, name))
    lacking = [name for name in CORE if name not in paths]
    return Message("torch/lib has no {}", lacking[0]) if lacking else paths
