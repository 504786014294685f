"""Locks in TOML: the document, without the lists of files that nobody asks for, and the lines of its packages."""

import re
from typing import Any, NamedTuple

from envdoctor.knowledge.toml_files import TomlError, parse_toml
from envdoctor.observe.documents.locks.lock import MOST_PACKAGES, LockError

#: Most of a lock: tomllib reads 1 MB a second, and no fact comes from it.
_FILES = r"(?m)^(?:wheels|files) = \[\n(?:[ \t{].*\n)*\](?=\n)|^sdist = \{.*\}$"
_HEAD = r"(?m)^\[\[packages?\]\][ \t]*$"
_VERSION = r"(?m)^version[ \t]*=|^\["
#: A wheel with a build number was built again by somebody: PyPI's have none.
_REBUILT = r"""[/"'][^-/"'\n]+-[^-/"'\n]+-\d[\w.]*-(?:cp|py|pp)\d[\w.]*-[\w.]+-[\w.]+\.whl"""


class Entry(NamedTuple):
    """A package's table; the line of its version (0 where it is not known); whether its wheel was built again."""

    table: dict[str, Any]
    line: int = 0
    rebuilt: bool = False


def read_packages(text: str, key: str) -> tuple[dict[str, Any], list[Entry]]:
    """The document and its packages. Raises :class:`LockError`."""
    try:
        document = parse_toml(re.sub(_FILES, "", text).encode("utf-8", "replace"), "")
    except TomlError as error:
        raise LockError("is {}", error.problem) from None
    packages = items(document.get(key))
    if not packages:
        raise LockError("holds no [[{}]]", key)
    if len(packages) > MOST_PACKAGES:
        raise LockError("names more than {} packages, and no environment has so many", f"{MOST_PACKAGES:,}")
    heads = [head.start() for head in re.finditer(_HEAD, text)]
    if len(heads) != len(packages):  # written in another way: the file is named without a line
        return document, [Entry(package) for package in packages]
    entries, line, counted = [], 1, 0
    for package, start, end in zip(packages, heads, [*heads[1:], len(text)], strict=True):
        version = re.compile(_VERSION).search(text, start + 2, end)
        place = version.start() if version is not None and text.startswith("version", version.start()) else start
        line += text.count("\n", counted, place)
        counted = place
        entries.append(Entry(package, line, re.compile(_REBUILT).search(text, start, end) is not None))
    return document, entries


def items(value: object) -> list[dict[str, Any]]:
    """The tables of a list; nothing of anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def words(value: object) -> list[str]:
    """The texts of a list; nothing of anything else."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def extras_of(names: list[str]) -> str:
    """``[all,torch]``, or nothing."""
    return f"[{','.join(names)}]" if names else ""
