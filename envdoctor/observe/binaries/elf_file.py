"""The dynamic part of one 64-bit little-endian ELF file, read in bounded pieces; a hostile file is an ElfError.

And where the system's loader finds shared libraries: its cache (ld.so(8)) and its own folders.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache

from envdoctor.observe.request import Request
from envdoctor.system.files import Files
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import rank

#: Machines that torch is released for (e_machine).
_MACHINES = {62: "x86_64", 183: "aarch64"}
_SHARED_OBJECT = 3  # e_type
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 1, 4, 5, 6, 10
_DT_RPATH, _DT_RUNPATH = 15, 29
_DT_GNU_HASH, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFFE, 0x6FFFFFFF
_DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFFC, 0x6FFFFFFD
_EXECUTABLE = 1  # p_flags
_BLOCK, _BLOCKS = 4096, 16
_WEAK_VERSION = 2
_GLOBAL, _WEAK = 1, 2
_SYMBOL = struct.Struct("<IBBHQQ")
# libtorch_cuda.so of torch 2.13 has 12 program headers, 60 dynamic entries and 140,000 symbols, and 18 MB of names.
_MOST_SEGMENTS = 512
_MOST_DYNAMIC = 4096
# The extension with the most to ask for, vllm's _C, has some thousands of undefined symbols.
_MOST_UNDEFINED = 1 << 17
_MOST_STRINGS = 32 << 20
_MOST_NAMES = 16 << 20
_LONGEST_FILE_NAME = 256
_LONGEST_PATHS = 8192
_MOST_VERSIONS = 1024
_LONGEST_CHAIN = 4096
# Chains have one or two entries on average; together they must not become the hours that the longest ones would be.
_MOST_STEPS = 1 << 19
#: Where a library is when the cache does not name it.
SYSTEM_FOLDERS = ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib")
_LARGEST_CACHE = 16 << 20
#: The format of glibc 2.2 and later, alone or behind the older one: magic, number of entries, …; an entry is flags,
#: the places of name and path, and what the processor must have.
_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD = 48
_ENTRY = struct.Struct("<iIIIQ")


class ElfError(Exception):
    """The file is no ELF file that can be read here. The message is a clause: ``it is shorter than its tables say``.

    ``damaged`` is true when the file contradicts itself or is cut off, so that a loader would refuse it too; false for
    what this reader does not cover (another file format, 32 bits, another machine).
    """

    def __init__(self, reason: str, *, damaged: bool = True) -> None:
        super().__init__(reason)
        self.damaged = damaged


class ElfFile:
    """An open shared object; use it as a context manager. Raises ``OSError`` when it cannot be opened.

    ``machine`` is x86_64 or aarch64; ``needed`` are the libraries that a loader would load with it. Every method
    raises :class:`ElfError` for a file that contradicts itself, and ``OSError`` when it cannot be read.
    """

    def __init__(self, path: str, files: Files) -> None:
        self._files = files
        self._descriptor = files.open(path)
        try:
            self._size = os.fstat(self._descriptor).st_size
            self.machine, self._segments, dynamic = self._program()
            self._tags, needed = self._dynamic(*dynamic)
            self._table: tuple[int, int, int, int, int] | None = None
            self._steps = _MOST_STEPS
            self._tag(_DT_STRTAB)  # every shared object has one: without it, the section is zeroed
            self.needed = tuple(map(self._short_name, needed))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ElfFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def is_zeroed(self) -> bool:
        """Return whether an eighth of its code or more is zeros, by blocks that are spread over it."""
        blocks = [
            self._pread(place, _BLOCK)
            for _, offset, length, flags in self._segments
            if flags & _EXECUTABLE
            for place in range(offset, offset + length - _BLOCK + 1, max(_BLOCK, length // _BLOCKS))
        ]
        zeros = sum(not any(block) for block in blocks)
        return zeros > 0 and 8 * zeros >= len(blocks)

    # --- what a file asks for -------------------------------------------------------------------------------------

    def undefined(self) -> list[bytes]:
        """Names of the symbols that other files must give it, in order; weak ones, which may stay open, left out."""
        if _DT_SYMTAB not in self._tags:
            return []
        count = self._first_hashed()
        if count > _MOST_UNDEFINED:
            raise ElfError(Message("it claims {} undefined symbols", count))
        table = self._at(self._tags[_DT_SYMTAB], count * _SYMBOL.size)
        size = self._tag(_DT_STRSZ)
        if size > _MOST_STRINGS:
            raise ElfError(Message("its table of names is too large"))
        strings = self._at(self._tag(_DT_STRTAB), size)
        names: list[bytes] = []
        room = _MOST_NAMES  # names may share their ends, but a few bytes must not stand for gigabytes of names
        for name, info, _, section, _, _ in _SYMBOL.iter_unpack(table):
            if section == 0 and info >> 4 == _GLOBAL and name:
                end = strings.find(b"\0", name)
                if end < 0:
                    raise ElfError(Message("a name lies outside its table of names"))
                room -= end - name
                if room < 0:
                    raise ElfError(Message("its names overlap without end"))
                names.append(strings[name:end])
        return names

    def versions(self) -> list[str]:
        """Symbol versions that it asks other files for (``GLIBC_2.28``), those that may be missing left out."""
        steps = 0
        names: dict[int, str] = {}  # names are shared between libraries
        for address, (_, count, _, first, _) in self._chained(_DT_VERNEED, _DT_VERNEEDNUM, "<HHIII"):
            for _, (_, flags, _, name, _) in self._chain(address + first, count, "<IHHII"):
                steps += 1
                if steps > _MOST_VERSIONS:
                    raise ElfError(Message("its version table has no end"))
                if not flags & _WEAK_VERSION and name not in names:
                    names[name] = self._short_name(name)
        return list(names.values())

    def _chained(self, tag: int, count: int, form: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the entries of a table of versions: as many as the other tag says, none without the table."""
        most = min(self._tags.get(count, 0), _MOST_VERSIONS) if tag in self._tags else 0
        return self._chain(self._tags.get(tag, 0), most, form)

    def _chain(self, address: int, most: int, form: str) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Entries and their addresses; the last field of each says how far it is to the next one."""
        for _ in range(most):
            fields = struct.unpack(form, self._at(address, struct.calcsize(form)))
            yield address, fields
            if not fields[-1]:
                return
            address += fields[-1]

    def search_paths(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the folders of DT_RPATH and of DT_RUNPATH as written (``$ORIGIN/../lib``). Where there is a RUNPATH,
        the loader does not look at RPATH, which is then empty."""
        runpath = self._folders(_DT_RUNPATH)
        return ((), runpath) if runpath else (self._folders(_DT_RPATH), ())

    def _folders(self, tag: int) -> tuple[str, ...]:
        if tag not in self._tags:
            return ()
        return tuple(folder for folder in self._short_name(self._tags[tag], _LONGEST_PATHS).split(":") if folder)

    def defined_versions(self) -> list[str]:
        """Symbol versions that it gives to other files (``GLIBCXX_3.4.30``), its own name among them."""
        table = self._chained(_DT_VERDEF, _DT_VERDEFNUM, "<HHHHIII")
        names = [self._at(address + first, 4) for address, (_, _, _, count, _, first, _) in table if count]
        return [self._short_name(int.from_bytes(name, "little")) for name in names]

    # --- what a file gives ----------------------------------------------------------------------------------------

    def exports(self, name: bytes) -> bool:
        """Return whether it defines a symbol, by its GNU hash table: bloom filter, bucket, chain."""
        address, buckets, first, words, shift = self._hash_table()
        hashed = gnu_hash(name)
        word = int.from_bytes(self._at(address + 16 + 8 * (hashed // 64 % words), 8), "little")
        if not (word >> (hashed % 64)) & (word >> ((hashed >> shift) % 64)) & 1:
            return False
        chains = address + 16 + 8 * words + 4 * buckets
        index = int.from_bytes(self._at(chains - 4 * buckets + 4 * (hashed % buckets), 4), "little")
        if index < first:
            return False
        for _ in range(_LONGEST_CHAIN):
            entry = int.from_bytes(self._at(chains + 4 * (index - first), 4), "little")
            if entry | 1 == hashed | 1 and self._defines(index, name):
                return True
            if entry & 1:
                return False
            index += 1
            self._steps -= 1
            if self._steps < 0:
                break
        raise ElfError(Message("a chain of its symbol table has no end"))

    def _defines(self, index: int, name: bytes) -> bool:
        place, info, _, section, _, _ = _SYMBOL.unpack(self._at(self._tag(_DT_SYMTAB) + index * _SYMBOL.size, 24))
        if section == 0 or info >> 4 not in (_GLOBAL, _WEAK, 10):  # 10: unique, a kind of global that GNU added
            return False
        return self._at(self._tag(_DT_STRTAB) + place, len(name) + 1) == name + b"\0"

    def _hash_table(self) -> tuple[int, int, int, int, int]:
        """Address, number of buckets, first symbol, words of the bloom filter, and its shift."""
        if self._table is None:
            if _DT_GNU_HASH not in self._tags:
                raise ElfError(Message("it has no GNU hash table"), damaged=False)
            address = self._tags[_DT_GNU_HASH]
            buckets, first, words, shift = struct.unpack("<IIII", self._at(address, 16))
            if not buckets or not words or shift > 63:
                raise ElfError(Message("its hash table is empty"))
            self._table = (address, buckets, first, words, shift)
        return self._table

    def _first_hashed(self) -> int:
        """Return how many symbols come before those that it gives: the undefined ones are among them."""
        if _DT_GNU_HASH in self._tags:
            address, buckets, first, words, _ = self._hash_table()
            if buckets > _MOST_UNDEFINED:
                raise ElfError(Message("it claims {} hash buckets", buckets))
            if any(self._at(address + 16 + 8 * words, 4 * buckets)):
                return first
        if _DT_HASH in self._tags:
            return int.from_bytes(self._at(self._tags[_DT_HASH] + 4, 4), "little")
        # A file that gives nothing has an empty table; every linker writes the names behind the symbols.
        return max(0, self._tag(_DT_STRTAB) - self._tag(_DT_SYMTAB)) // _SYMBOL.size

    # --- reading --------------------------------------------------------------------------------------------------

    def _program(self) -> tuple[str, list[tuple[int, int, int, int]], tuple[int, int]]:
        head = self._pread(0, 64, short=True)
        if head[:4] != b"\x7fELF":
            # Fat and thin Mach-O files of macOS are called .so as well.
            other = head[:4] in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf") or head[:2] == b"MZ"
            raise ElfError(Message("it is no ELF file"), damaged=not other)
        if len(head) < 64:
            raise ElfError(Message("it is cut off"))
        if head[4:6] != b"\x02\x01":
            raise ElfError(Message("it is not a 64-bit little-endian file"), damaged=False)
        kind, machine = struct.unpack_from("<HH", head, 16)
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        if machine not in _MACHINES:
            raise ElfError(Message("it is for another machine (ELF machine {})", machine), damaged=False)
        if kind != _SHARED_OBJECT or size != 56 or not 0 < count <= _MOST_SEGMENTS:
            raise ElfError(Message("it is no shared object"))
        segments: list[tuple[int, int, int, int]] = []
        dynamic: tuple[int, int] | None = None
        for what, flags, offset, address, _, length, _, _ in struct.iter_unpack(
            "<IIQQQQQQ", self._pread(table, 56 * count)
        ):
            if what == _PT_LOAD:
                if offset + length > self._size:
                    raise ElfError(Message("it is shorter than its own tables say"))
                segments.append((address, offset, length, flags))
            elif what == _PT_DYNAMIC:
                dynamic = (offset, length)
        if dynamic is None:
            raise ElfError(Message("it has no dynamic section"))
        return _MACHINES[machine], segments, dynamic

    def _dynamic(self, offset: int, length: int) -> tuple[dict[int, int], list[int]]:
        if length > 16 * _MOST_DYNAMIC:
            raise ElfError(Message("its dynamic section is too large"))
        tags: dict[int, int] = {}
        libraries: list[int] = []
        for tag, value in struct.iter_unpack("<QQ", self._pread(offset, length // 16 * 16)):
            if tag == 0:
                break
            if tag == _DT_NEEDED:
                libraries.append(value)
            else:
                tags.setdefault(tag, value)
        return tags, libraries

    def _tag(self, tag: int) -> int:
        value = self._tags.get(tag)
        if value is None:
            raise ElfError(Message("its dynamic section lacks a table"))
        return value

    def _short_name(self, offset: int, longest: int = _LONGEST_FILE_NAME) -> str:
        """Return the name of a library or a version, or a list of folders."""
        room = self._tag(_DT_STRSZ) - offset
        text, end, _ = self._at(self._tag(_DT_STRTAB) + offset, max(0, min(longest, room))).partition(b"\0")
        if not end:
            raise ElfError(Message("a name lies outside its table of names"))
        return text.decode("utf-8", "replace")

    def _at(self, address: int, size: int) -> bytes:
        """Bytes at an address of the loaded file."""
        for start, offset, length, _ in self._segments:
            if start <= address and address + size <= start + length:
                return self._pread(offset + address - start, size)
        raise ElfError(Message("a table lies outside the file"))

    def _pread(self, offset: int, size: int, *, short: bool = False) -> bytes:
        if offset + size > self._size and not short:
            raise ElfError(Message("it is shorter than its own tables say"))
        self._files.use(1, size)
        if hasattr(os, "pread"):
            data = os.pread(self._descriptor, size, offset)
        else:  # Windows
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            data = os.read(self._descriptor, size)
        if len(data) < size and not short:
            raise ElfError(Message("it is shorter than its own tables say"))
        return data


@lru_cache(maxsize=1)  # several files are asked for one name
def gnu_hash(name: bytes) -> int:
    """Return the hash of GNU hash tables (32 bits)."""
    value = 5381
    for letter in name:
        value = (value * 33 + letter) & 0xFFFFFFFF
    return value


def newest(versions: Iterable[str], name: str) -> str | None:
    """Return the highest symbol version that is called like this (``GLIBC_2.28`` for GLIBC), 2.28; None without one."""
    matches = [re.match(r"([A-Z]{1,20})_(\d{1,4}(?:\.\d{1,4}){1,2})\Z", version) for version in versions]
    return max((match[2] for match in matches if match and match[1] == name), key=rank, default=None)


def cached_library(name: str, request: Request) -> list[str]:
    """Return the paths that the loader's cache of a machine has for a library, in its order; none when it cannot be
    read."""
    try:
        data = Files().head(request.path("/etc/ld.so.cache"), _LARGEST_CACHE)
    except OSError:
        return []
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEAD:
        return []
    (count,) = struct.unpack_from("<I", data, start + len(_MAGIC))
    key = name.encode() + b"\0"
    paths: list[str] = []
    for index in range(min(count, (len(data) - start - _HEAD) // _ENTRY.size)):
        _, place, value, _, _ = _ENTRY.unpack_from(data, start + _HEAD + index * _ENTRY.size)
        if data.startswith(key, start + place):
            text, end, _ = data[start + value : start + value + 4096].partition(b"\0")
            if end and text.startswith(b"/"):
                paths.append(request.path(os.fsdecode(text)))
    return paths
