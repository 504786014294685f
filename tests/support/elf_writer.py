"""Writes small 64-bit ELF files: shared objects from lists of names (what they give, ask for, and from whom), and
files of one section."""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from envdoctor.observe import gnu_hash

_MACHINES = {"x86_64": 62, "aarch64": 183}
_HEADER, _SEGMENT, _SYMBOL = 64, 56, 24
_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 11, 14, 15, 29
_GNU_HASH, _VERSYM, _VERNEED, _VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
_GLOBAL_FUNCTION, _GLOBAL_UNTYPED = 0x12, 0x10


def shared_object(
    *,
    name: str = "",
    gives: Iterable[str] = (),
    asks: Iterable[str] = (),
    needs: Iterable[str] = (),
    versions: Mapping[str, Iterable[str]] | None = None,
    rpath: str = "",
    runpath: str = "",
    machine: str = "x86_64",
) -> bytes:
    """The bytes of a shared object called ``name``.

    ``gives`` are the symbols that it defines and ``asks`` those that others must define. ``needs`` are libraries that
    are loaded with it, and ``versions`` the symbol versions asked of a library: ``{"libc.so.6": ["GLIBC_2.17"]}``.
    ``rpath`` and ``runpath`` are where those libraries are looked for.
    """
    gives, asks = sorted(gives), sorted(asks)
    strings = _Strings()
    needed = [strings.add(library) for library in needs]
    named = [(tag, strings.add(text)) for tag, text in ((_SONAME, name), (_RPATH, rpath), (_RUNPATH, runpath)) if text]
    symbols = bytes(_SYMBOL)
    for symbol in asks:
        symbols += struct.pack("<IBBHQQ", strings.add(symbol), _GLOBAL_UNTYPED, 0, 0, 0, 0)
    for symbol in gives:
        symbols += struct.pack("<IBBHQQ", strings.add(symbol), _GLOBAL_FUNCTION, 0, 1, _HEADER, 1)
    version_needs, version_count = _version_needs(versions or {}, strings)
    tables = {
        _SYMTAB: symbols,
        _STRTAB: strings.bytes(),
        _GNU_HASH: _hash_table(gives, 1 + len(asks)),
        _VERNEED: version_needs,
        _VERSYM: b"\0\0" + b"\1\0" * (len(asks) + len(gives)),
    }
    if not version_count:
        del tables[_VERNEED], tables[_VERSYM]
    body, places = b"", {}
    for tag, table in tables.items():
        places[tag] = _HEADER + 3 * _SEGMENT + len(body)
        body += table + bytes(-len(table) % 8)
    entries = [(_NEEDED, place) for place in needed] + named + sorted(places.items())
    entries += [(_STRSZ, len(strings.bytes())), (_SYMENT, _SYMBOL)]
    entries += [(_VERNEEDNUM, version_count)] if version_count else []
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in [*entries, (0, 0)])
    start = _HEADER + 3 * _SEGMENT + len(body)
    size = start + len(dynamic)
    segments = [
        struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, size, size, 0x1000),  # PT_LOAD: the whole file
        struct.pack("<IIQQQQQQ", 2, 6, start, start, start, len(dynamic), len(dynamic), 8),  # PT_DYNAMIC
        struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16),  # PT_GNU_STACK: not executable
    ]
    return _head(machine, segments=3) + b"".join(segments) + body + dynamic


def write_shared_object(path: Path, *, needed: Iterable[str] = (), rpath: str = "", runpath: str = "") -> Path:
    """A shared object at ``path``, its folder made, that has these entries in its dynamic section."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shared_object(needs=needed, rpath=rpath, runpath=runpath))
    return path


def section_file(content: bytes, *, name: bytes = b".rodata", length: int | None = None) -> bytes:
    """A file of nothing but one section and the names of its sections; ``length`` is what it says of its size."""
    names = b"\0" + name + b"\0.shstrtab\0"
    sections = [
        (0,) * 10,
        (1, 1, 0, 0, _HEADER, len(content) if length is None else length, 0, 0, 1, 0),
        (2 + len(name), 3, 0, 0, _HEADER + len(content), len(names), 0, 0, 1, 0),
    ]
    head = _head("x86_64", table=_HEADER + len(content) + len(names), sections=3)
    return head + content + names + b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections)


def _head(machine: str, *, segments: int = 0, table: int = 0, sections: int = 0) -> bytes:
    """The file header of a shared object; its segments follow it, its section ``table`` is anywhere."""
    places = (_HEADER if segments else 0, table, 0, _HEADER, _SEGMENT, segments, 64, sections, max(sections - 1, 0))
    return b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, _MACHINES[machine], 1, 0, *places)


class _Strings:
    """The table of names, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {"": 0}
        self._content = b"\0"

    def add(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self._content)
            self._content += text.encode() + b"\0"
        return self._places[text]

    def bytes(self) -> bytes:
        return self._content


def _hash_table(gives: list[str], first: int) -> bytes:
    """A GNU hash table of one bucket, whose bloom filter lets everything through."""
    chain = [gnu_hash(symbol.encode()) & ~1 for symbol in gives]
    if chain:
        chain[-1] |= 1
    return struct.pack(f"<IIIIQI{len(chain)}I", 1, first, 1, 6, 2**64 - 1, first if chain else 0, *chain)


def _version_needs(versions: Mapping[str, Iterable[str]], strings: _Strings) -> tuple[bytes, int]:
    table, index = b"", 2
    for number, (library, names) in enumerate(versions.items(), 1):
        wanted = list(names)
        last = number == len(versions)
        size = 16 * (1 + len(wanted))
        table += struct.pack("<HHIII", 1, len(wanted), strings.add(library), 16, 0 if last else size)
        for position, name in enumerate(wanted, 1):
            following = 0 if position == len(wanted) else 16
            table += struct.pack("<IHHII", _sysv_hash(name.encode()), 0, index, strings.add(name), following)
            index += 1
    return table, len(versions)


def _sysv_hash(name: bytes) -> int:
    value = 0
    for letter in name:
        value = (value << 4) + letter
        value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return value
