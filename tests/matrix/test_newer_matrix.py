"""A newer matrix that is installed beside envdoctor is used; an older or a broken one is not."""

import os
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from build_matrix_wheel import build

from envdoctor.cli.main import main
from envdoctor.matrix import load_matrix
from envdoctor.matrix import matrix as module

RULE = """schema = 1
rule = {{ severity = "note", confidence = "upstream", effect = "crash", added = {day}, open_ended = true }}
"""
REST = 'affects = [{ "pkg.torch" = "==2.5.0" }]\nmessage = { en = "it fails" }\nwhy = { en = "it was built so" }\n'


@pytest.fixture
def beside(tmp_path: Path, home: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a matrix of a given day where pip would put it."""

    def install(day: str) -> Path:
        (home / "rules" / "new.toml").write_text(RULE.format(day=day) + REST, encoding="utf-8")
        with ZipFile(build(home, tmp_path)) as wheel:
            wheel.extractall(tmp_path / "site")
        monkeypatch.setattr(module, "_BESIDE", tmp_path / "site" / "envdoctor_matrix")
        return tmp_path / "site"

    return install


def test_a_newer_one_is_used_and_dated(beside):
    site = beside("2099-01-02")
    found = load_matrix()
    assert (found.version, found.source, found.compiled) == ("2099.01.02", "envdoctor-matrix", True)
    assert [rule.id for rule in found.rules] == ["new"] and found.texts(found.rules[0])["message"]["en"] == "it fails"
    assert (site / "envdoctor_matrix-2099.1.2.dist-info" / "METADATA").is_file()


HEADS = ("", "[]", "{}", '{"schema": 2, "version": "2099.01.01"}', '{"schema": 1, "version": 7}', "\xff")


@pytest.mark.parametrize(
    ("day", "name", "content"),
    [
        ("2001-01-02", "", ""),
        *(("2099-01-02", "index.jsonl", head) for head in HEADS),
        ("2099-01-02", "index.jsonl", '{"schema": 1, "version": "zzzz", "files": {}}'),
        ("2099-01-02", "texts.jsonl", ""),
        ("2099-01-02", "retired.json", ""),
    ],
)
def test_an_older_one_and_one_that_cannot_be_read_or_is_not_whole_is_not(beside, home, day, name, content):
    (home / "retired.toml").write_text("[retired]\n")
    site = beside(day)
    if name:
        (site / "envdoctor_matrix" / name).write_text(content, encoding="latin-1")
    assert load_matrix().source == "bundled"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are pipes with names on Unix alone")
def test_one_that_is_a_pipe_is_not_waited_for(beside):
    index = beside("2099-01-02") / "envdoctor_matrix" / "index.jsonl"
    index.unlink()
    os.mkfifo(index)
    assert load_matrix().source == "bundled"


@pytest.mark.parametrize(
    ("receipt", "command"),
    [
        (None, f"{sys.executable} -m pip install --upgrade envdoctor-matrix"),
        ("uv-receipt.toml", "uv tool install --upgrade --with envdoctor-matrix envdoctor"),
        ("pipx_metadata.json", "pipx inject --force envdoctor envdoctor-matrix"),
    ],
)
def test_matrix_update_prints_the_command(tmp_path, monkeypatch, capsys, receipt, command):
    if receipt:
        (tmp_path / receipt).write_text("")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert main(["matrix", "update"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == command
