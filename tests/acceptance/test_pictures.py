"""The pictures of docs/output.md show what the program prints today."""

import re
import struct
from pathlib import Path

import pytest
from browser import chromium

import pictures

MAKE = "out of date: python tools/pictures.py"


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def test_the_chapter_shows_both_in_both_languages():
    for name in ("docs/output.md", "docs/zh/output.md"):
        text = (pictures.ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r"!\[[^]]+\]\([./]+pictures/([^)]+)\)", text) == ["terminal.svg", "report.png"]


@pytest.mark.slow
def test_the_terminal_is_drawn_as_it_is_printed():
    assert pictures.TERMINAL.read_text(encoding="utf-8") == pictures.terminal(), MAKE


@pytest.mark.slow
def test_the_page_is_photographed_as_it_is(tmp_path: Path):
    kept = pictures.REPORT.read_bytes()
    assert f"envdoctor\0{pictures.shown(pictures.page(tmp_path))}".encode() in kept, MAKE
    program = chromium()
    if program is None:
        pytest.skip("no Chromium: ENVDOCTOR_TEST_CHROMIUM may name one")
    again = pictures.report(program, tmp_path)
    assert size(again) == size(kept) == (pictures.WIDTH, pictures.HEIGHT)
    assert 20_000 < len(kept) < 400_000 and abs(len(again) - len(kept)) < len(kept)
