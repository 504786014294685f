"""One reader of files: bounded, of regular files only, and it never waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envdoctor.text.files import Files, because_of


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    return str(tmp_path / "a.bin")


def reason(call: object, *arguments: object) -> str:
    with pytest.raises(OSError) as caught:
        call(*arguments)  # type: ignore[operator]
    return because_of(caught.value)


def test_ranges_are_read_whole_in_any_order(file: str) -> None:
    assert Files().ranges(file, [(8, 2), (0, 3), (10, 0)]) == [b"89", b"012", b""]
    assert reason(Files().ranges, file, [(0, 1), (8, 3)]) == "it ends before byte 11"


def test_a_file_above_the_limit_is_not_read(file: str) -> None:
    assert Files().whole(file, 10) == b"0123456789"
    assert reason(Files().whole, file, 9) == "it is larger than 9 bytes"
    assert Files().head(file, 4) == b"0123"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_devices_and_folders_are_no_files_and_hold_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, why in (
        (tmp_path / "pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (tmp_path, "a folder"),
    ):
        assert reason(Files().whole, str(place), 1 << 20) == f"it is {why}"
        assert reason(Files().ranges, str(place), [(0, 1)]) == f"it is {why}"


def test_a_name_that_no_file_can_have_is_an_error_like_any_other() -> None:
    assert reason(Files().head, "a\0b", 1) == reason(Files().whole, "a\0b", 1) == "embedded null byte"
