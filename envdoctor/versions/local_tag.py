"""Which torch and CUDA a package was built for by its local version: ``2.7.3+cu12torch2.4cxx11abifalse``."""

import re
from typing import NamedTuple

# Patterns are compiled when there is a text to match: most runs have none.
#: torch2.8, torch2.8.0, torch28, pt24, pt270: as flash-attn, PyG and OpenRLHF name their wheels.
_TORCH = r"(?<![a-z])(?:torch|pt)(\d)(?:\.(\d{1,2})(?:\.(\d{1,2}))?|(\d{1,2}))(?!\d)"
#: cu12, cu121, cu12.8
_CUDA = r"(?<![a-z])cu(1\d)(?:\.?(\d{1,2}))?(?!\d)"


class BuiltFor(NamedTuple):
    """A torch release (``2.8``, ``2.8.0``), a CUDA version (``12``, ``12.8``), and whether it is a torch with the C++11
    ABI; None where nothing is said. ``says`` names the place that says so."""

    torch: str | None = None
    cuda: str | None = None
    says: str | None = None
    new_abi: bool | None = None


def said_by_tag(tag: str) -> BuiltFor:
    """Read a local version: ``cu12torch2.8cxx11abitrue``, ``pt24cu121``, ``cu130``."""
    tag = tag.lower()
    if tag.startswith("cu") and tag[2:].isdecimal() and tag.isascii() and 4 <= len(tag) <= 6:  # most have no more
        return BuiltFor(None, tag[2:4] + (f".{tag[4:]}" if tag[4:] else ""))
    cuda = re.search(_CUDA, tag) if tag else None
    return BuiltFor(
        _release_in(tag),
        None if cuda is None else cuda[1] + (f".{cuda[2]}" if cuda[2] else ""),
        new_abi="cxx11abitrue" in tag if "cxx11abi" in tag else None,
    )


def _release_in(tag: str) -> str | None:
    match = re.search(_TORCH, tag) if tag else None
    if match is None:
        return None
    major, minor, patch, run = match.groups()
    if run is None:
        return f"{major}.{minor}" + (f".{patch}" if patch else "")
    if len(run) == 1 or major == "1":  # pt24, pt113
        return f"{major}.{run}"
    # pt270 is 2.7.0; pt210 is 2.10 for some builders and 2.1.0 for others.
    return None if run[0] == "1" else f"{major}.{run[0]}.{run[1]}"


def is_own_build(version: str) -> bool:
    """Return whether the project itself built this version: it has no local tag, or one of the project's (``+cu124``,
    ``+cpu``, ``+rocm6.4``). A commit, a vendor or a date means that somebody else built it, against their own torch."""
    tag = version.partition("+")[2].lower()
    own = r"(?:cu\d{2,4}|cpu|xpu|rocm[\d.]+)(?:[._-]?(?:torch|pt)[\d.]+)?(?:cxx11abi\w+)?"
    return not tag or re.fullmatch(own, tag) is not None
