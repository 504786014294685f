"""What was looked at on the disk is the same, or it is not: whatever is done to it in between."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from envdoctor.system import Budget, Files, Looks, Spent, add_looks
from envdoctor.system.cache import same_looks, settled, written_looks

SECOND = 1_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files and a folder, which no file system's clock will call new."""
    inside = tmp_path / "packages" / "inside"
    inside.mkdir(parents=True)
    (inside / "deep.py").write_text("x = 1\n")
    (inside.parent / "file.py").write_text("y = 1\n")
    return inside.parent


def looked(folder: Path, root: Path | None = None) -> memoryview:
    """Everything of the folder, looked at in every way."""
    files = Files(None if root is None else str(root))
    files.looks = Looks()
    for name in files.names(str(folder)):
        files.is_folder(str(folder / name))
    files.names_or_none(str(folder / "inside"))
    files.names_or_none(str(folder / "nowhere"))
    files.head(str(folder / "file.py"), 10)
    files.is_file(str(folder / "missing.py"))
    files.status(str(folder / "inside" / "deep.py"))
    return memoryview(written_looks(files.looks))


def in_place(path: Path) -> None:
    """Other content of the same size, and the time of change put back."""
    before = path.stat()
    path.write_text("z = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def exchanged(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, Callable[[Path], object]] = {
    "read": lambda folder: in_place(folder / "file.py"),
    "status": lambda folder: in_place(folder / "inside" / "deep.py"),
    "removed": lambda folder: (folder / "file.py").unlink(),
    "folder for file": lambda folder: exchanged(folder / "file.py"),
    "name": lambda folder: (folder / "inside" / "new.py").write_text(""),
    "missing": lambda folder: (folder / "missing.py").write_text(""),
    "missing folder": lambda folder: (folder / "nowhere").mkdir(),
}


@pytest.mark.parametrize("rooted", [False, True])
@pytest.mark.parametrize("change", [None, *CHANGES])
def test_any_change_of_what_was_looked_at_shows(folder: Path, tmp_path: Path, change: str | None, rooted: bool) -> None:
    root = tmp_path if rooted else None
    before = looked(folder, root)
    if change is not None:
        CHANGES[change](folder)
    assert same_looks(before, Files(None if root is None else str(root))) is (change is None)


def test_a_name_that_was_computed_shows_too(folder: Path) -> None:
    """A name for which a checksum of all names stays as it was: each of its letters changes certain bits of it."""
    before = looked(folder)
    names = "\0".join(sorted(os.listdir(folder)))
    letters = ["a"] * 48

    def checksum() -> int:
        return crc32(f"{names}\0z{''.join(letters)}".encode())

    left, basis = checksum() ^ crc32(names.encode()), {}
    for place in range(len(letters)):
        start = checksum()
        letters[place] = "b"
        bits, places = checksum() ^ start, {place}
        letters[place] = "a"
        for highest, (other, more) in sorted(basis.items(), reverse=True):
            if bits >> highest & 1:
                bits, places = bits ^ other, places ^ more
        if bits:
            basis[bits.bit_length() - 1] = bits, places
    chosen: set[int] = set()
    for highest, (bits, places) in sorted(basis.items(), reverse=True):
        if left >> highest & 1:
            left, chosen = left ^ bits, chosen ^ places
    letters = ["b" if place in chosen else "a" for place in range(len(letters))]
    assert checksum() == crc32(names.encode())
    (folder / f"z{''.join(letters)}").write_text("")
    assert not same_looks(before, Files())


def test_bytecode_that_an_import_leaves_is_no_change(folder: Path) -> None:
    before = looked(folder)
    (folder / "inside" / "__pycache__").mkdir()
    assert same_looks(before, Files())


def test_what_somebody_else_looked_at_counts_too(folder: Path) -> None:
    theirs, looks = Files(), Looks()
    theirs.looks = Looks()
    theirs.head(str(folder / "file.py"), 10)
    add_looks(looks, {path: list(mark) for path, mark in theirs.looks.files.items()}, {})
    assert same_looks(memoryview(written_looks(looks)), Files())
    (folder / "file.py").write_text("longer than before")
    assert not same_looks(memoryview(written_looks(looks)), Files())


def test_what_was_changed_just_now_is_not_settled(folder: Path) -> None:
    files = Files()
    files.looks = Looks()
    files.head(str(folder / "file.py"), 10)
    changed = os.stat(folder / "file.py").st_ctime_ns
    assert settled(files.looks, changed + SECOND)
    assert not settled(files.looks, changed + 1)
    assert not settled(files.looks, changed - SECOND)
    files.looks.failed = True
    assert not settled(files.looks, changed + SECOND)


def test_a_clock_that_ticks_in_seconds_needs_longer() -> None:
    looks = Looks()
    looks.files["a"] = (1, 5 * SECOND)
    assert not settled(looks, 6 * SECOND)
    assert settled(looks, 8 * SECOND)


def test_looking_again_is_counted(folder: Path) -> None:
    with pytest.raises(Spent):
        same_looks(looked(folder), Files(budget=Budget(steps=2)))


def test_names_that_are_no_text_are_looked_at_too(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    try:
        (tmp_path / name).write_text("")
    except OSError:
        pytest.skip("this file system has no such names")
    files = Files()
    files.looks = Looks()
    assert files.names(str(tmp_path)) == [name]
    assert stat.S_ISREG(files.status(str(tmp_path / name)).st_mode)
    assert same_looks(memoryview(written_looks(files.looks)), Files())
