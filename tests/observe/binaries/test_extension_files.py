"""Compiled files of one distribution by its list of files, which may be hostile."""

from __future__ import annotations

import pytest

from envdoctor.observe.binaries.reading.extension_files import MOST_FILES, compiled_files
from envdoctor.observe.packages.reading.file_list import listed_libraries
from envdoctor.text import Files


def listed(folder, record: bytes, there=()):
    metadata = folder / "pack-1.0.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_bytes(record)
    for name in there:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    found, why = compiled_files(str(metadata), "dist-info", ["pack"], [str(folder)], Files())
    return [name for _, name in found], why


@pytest.mark.parametrize(
    "flood",
    [b".so," * 6_000_000, b"x" * 24_000_000 + b".so,", b'a,".so,,\n' * 3_000_000, b".so,\n" * 5_000_000],
    ids=["one line of endings", "one long name", "lines that name nothing", "one name again and again"],
)
def test_a_list_of_megabytes_of_endings_is_done_with(tmp_path, flood):
    # Looking back to the beginning of the list at each ending would take hours.
    names, _ = listed(tmp_path, b"pack/_C.so,sha256=x,1\n" + flood, ["pack/_C.so"])
    assert names == ["pack/_C.so"]


@pytest.mark.parametrize(("length", "found"), [(400, True), (401, False)])
def test_a_name_is_read_up_to_its_limit(tmp_path, length, found):
    for number, before in enumerate((b"", b"x.py,,\n")):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "RECORD").write_bytes(before + f"{'n' * (length - 3)}.so,,\n".encode())
        entries = listed_libraries(str(tmp_path / f"{number}"), Files())
        assert [len(entry.name) for entry in entries] == ([length] if found else [])


def test_more_compiled_files_than_are_read_are_said(tmp_path):
    names = [f"pack/m{number:03}.so" for number in range(MOST_FILES + 1)]
    found, why = listed(tmp_path, "".join(f"{name},,\n" for name in names).encode(), names)
    assert found == names[:MOST_FILES]
    assert why == f"only {MOST_FILES} of the compiled files of one package were read"
