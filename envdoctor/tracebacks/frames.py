"""The lines of a traceback that say where: which file of which package, and the statement that failed there."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Frame(NamedTuple):
    """``path`` as written, ``function`` ("" when it is not said), ``code`` the source line below ("" for none)."""

    path: str
    line: int
    function: str
    code: str

    @property
    def module(self) -> str:
        """The dotted module by the file's place below site-packages; "" for a file that lies elsewhere."""
        return module_of(self.path)


_PYTHON = re.compile(r'File "([^"]{1,500})", line (\d{1,7})(?:, in (.{1,200}))?')
_IPYTHON = re.compile(r"(?<![^\"',:])([^\"',:]*):(\d{1,7})(?:, in (.{1,200}))?")
_OLD_IPYTHON = re.compile(r"((?:/|~|[A-Za-z]:\\|<ipython)[^\"']{1,500}?) in (<?\w{1,100}>?)(?:\(|\Z)")
_CELL = re.compile(r"Cell In ?\[\d{1,6}\], line (\d{1,7})")
_ARROW = re.compile(r"-+> ?(\d{1,7}) ?(.*)")
_FILE = re.compile(r"([\w-]+)\.(?:py|pyx|so)\b")


def module_of(path: str) -> str:
    """``.../site-packages/peft/utils/other.py`` is ``peft.utils.other``; a package's ``__init__`` is the package."""
    *folders, file = path.replace("\\", "/").split("/")
    below = [place for place, name in enumerate(folders, 1) if name.endswith(("site-packages", "dist-packages"))]
    # Checkouts keep their packages in src/, for which there is no site-packages.
    below = below or [place for place, name in enumerate(folders, 1) if name == "src" and 1 < place < len(folders)]
    found = _FILE.match(file) if below else None
    if found is None:
        return ""
    parts = [*folders[below[-1] :], *([] if found[1] == "__init__" else [found[1]])]
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def imported_in(code: str) -> str:
    """The absolute module that a line of source imports (from) first; "" for another line."""
    found = re.match(r"\s*(?:from|import)\s+([^\W\d][\w.]{0,200})", code)
    return found[1] if found else ""


def pointed_at(lines: Sequence[str]) -> str:
    """The line of source that a notebook's arrow points at; "" when there is none."""
    return next((arrow[2].strip() for line in lines if (arrow := _ARROW.match(line.strip()))), "")


def frames_of(lines: Sequence[str]) -> Iterator[Frame]:
    """Every frame in the lines, in order: as Python writes them, and as notebooks do."""
    for number, line in enumerate(lines):
        if (place := _place(line)) is not None:
            yield Frame(*place, _code(lines, number))
            continue
        found = _OLD_IPYTHON.match(line) if " in " in line else None
        if found is not None:
            yield Frame(found[1].strip(), 0, found[2], _code(lines, number))
            continue
        found = _CELL.search(line)
        if found is not None:
            yield Frame("", int(found[1]), "", _code(lines, number))


def _code(lines: Sequence[str], number: int) -> str:
    """The source that failed: the line with an arrow in notebooks, the next line elsewhere."""
    following = lines[number + 1 : number + 12]
    for line in following:
        arrow = _ARROW.match(line.strip())
        if arrow is not None:
            return arrow[2].strip()
        if "File " in line or not line.strip():
            break
    first = following[0] if following else ""
    return "" if _place(first) else first.strip()


def _place(line: str) -> tuple[str, int, str] | None:
    """The file, the line in it and the function that a line of a traceback names; None for another line."""
    found = _PYTHON.search(line)
    if found is not None:
        return found[1], int(found[2]), (found[3] or "").strip()
    for found in _IPYTHON.finditer(line) if "File " in line else ():
        path = found[1].partition("File ")[2]
        if path[:1].strip():
            return path, int(found[2]), (found[3] or "").strip()
    return None
