"""GPUs by the names that drivers and people give them: ``NVIDIA A100-SXM4-80GB``, ``RTX 4090 24G``, ``4090``."""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from envdoctor.knowledge.matrix import Matrix

_SIZE = r"(?i)\b(\d{1,3})\s*(?:GB|GiB|G)[)\uff09]?(?: PCIe| HBM\w+)?\Z"
_LETTERS_THEN_DIGITS = r"(?i)\A(RTX|GTX|Quadro|Tesla)(?=[A-Z]?\d)"
#: Where people leave out a blank, or write something else for it: ``rtx-4090``, ``3090Ti``, ``RTXPRO6000``.
_JOINTS = (
    r"(?i)[\s_-]+|(?<=\d)(?=(?:Ti|D|Super|Ada)\b)|(?<=RTX)(?=PRO|\d)|(?<=PRO)(?=\d)|(?<=TITAN)(?=RTX|V\b)|(?<=DGX)(?=S)"
)
#: What people leave out in front; ``RTX 6000`` is of two series, and stays what it is.
_SERIES = ("", "RTX ", "GeForce ", "GeForce RTX ", "GeForce GTX ", "Tesla ")
_OTHERS = {"rocm": r"(?i)\b(?:AMD|Instinct|Radeon|MI\d{2,3}[AX]?)\b", "ascend": r"(?i)\bAscend|昇腾|\b910[ABC]\d?\b"}
_COUNT = r"\A\d{1,3}\s*[x*]\s*"


class NamedGpu(NamedTuple):
    """``name`` is one that the tables know, ``row`` its row there. ``memory`` is the size in GB that the name tells,
    else the advertised one; None when the product comes in several sizes. Cards are sold with more memory than their
    maker gave them (``4090 48G``): a size that the table does not have stays in ``name``."""

    name: str
    row: Mapping[str, Any]
    memory: int | None


def gpu_named(name: str, matrix: Matrix) -> NamedGpu | None:
    """What is known of a GPU by its name; None when no table has it."""
    match = re.search(_SIZE, name)
    said = int(match[1]) if match else 0
    for spelled in _spellings(name, name[: match.start()].rstrip(" \t_(\uff08-") if match else name):
        row = _row(spelled, matrix)
        if row is not None:
            sizes = tuple(row.get("memory_gb", ()))
            if said and spelled != name and sizes != (said,):
                spelled += f" {said}GB"
            return NamedGpu(spelled, row, said or (sizes[0] if len(sizes) == 1 else None))
    return None


def _row(name: str, matrix: Matrix) -> Mapping[str, Any] | None:
    """What the tables have of a GPU under exactly this name: its product, or else its series."""
    rows = (row for table in ("gpus", "gpu-series") for row in matrix.rows(table))
    return next((row for row in rows if is_one_of(name, row["names"])), None)


def is_one_of(name: str, globs: Iterable[str]) -> bool:
    """Whether one of the patterns names this GPU, in whatever case."""
    return any(fnmatchcase(name.lower(), glob.lower()) for glob in globs)


def known_gpus(matrix: Matrix) -> list[str]:
    """The products of the table, to be suggested."""
    return [row["key"] for row in matrix.rows("gpus")]


def other_accelerator(name: str) -> str | None:
    """The kind of accelerator, as ``machine.accelerators`` has it, that is named and is no GPU of NVIDIA's."""
    return next((kind for kind, words in _OTHERS.items() if re.search(words, name)), None)


def _spellings(name: str, without_size: str) -> Iterator[str]:
    yield name
    plain = " ".join(without_size.split())
    yield plain
    yield re.sub(_LETTERS_THEN_DIGITS, r"\1 ", plain)
    apart = re.sub(_JOINTS, " ", re.sub(_COUNT, "", plain))
    for words in dict.fromkeys((plain, apart)):
        yield from (f"{series}{words}" for series in _SERIES)
