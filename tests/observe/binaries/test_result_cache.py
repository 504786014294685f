"""What was found in compiled files is read again only when none of them changed; a hostile cache is no cache."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observing import choose, observe, one

from envdoctor.facts.values import ABSENT, Records, Unknown
from envdoctor.observe.binaries import extension
from envdoctor.observe.binaries.reading.result_cache import ResultCache, identity
from envdoctor.text.files import Files

RESULT = ([{"unresolved": 1, "example": "c10::Error", "missing_library": ABSENT, "arch": Unknown("why")}, None], None)


def cache(home: Path | None, name: str = "env", key: tuple[object, ...] = ("key",)) -> ResultCache:
    return ResultCache(str(home) if home else None, (name,), key)


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    assert cache(tmp_path).get() is None
    cache(tmp_path).put(RESULT)
    assert cache(tmp_path).get() == RESULT
    cache(tmp_path).put(([], "why"))
    assert cache(tmp_path).get() == ([], "why")


def test_another_key_or_environment_has_no_result(tmp_path: Path) -> None:
    cache(tmp_path).put(RESULT)
    assert cache(tmp_path, key=("other",)).get() is None
    assert cache(tmp_path, name="other").get() is None


def test_without_a_home_nothing_is_kept(tmp_path: Path) -> None:
    cache(None).put(RESULT)
    assert cache(None).get() is None


def test_a_home_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache(tmp_path / "file").put(RESULT)
    assert cache(tmp_path / "file").get() is None


def test_the_oldest_entries_make_room_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "abi").mkdir()
    (tmp_path / "abi" / "mine.txt").write_text("mine")
    left = tmp_path / "abi" / "1-1.new"
    left.write_text("an interrupted writer")
    os.utime(left, (1, 1))
    for number in range(40):
        cache(tmp_path, name=str(number)).put(RESULT)
    names = os.listdir(tmp_path / "abi")
    assert len(names) == 33
    assert "mine.txt" in names
    assert left.name not in names
    assert cache(tmp_path, name="39").get() == RESULT


@pytest.mark.parametrize(
    "change",
    [
        {"items": [{"unresolved": -1}, None]},
        {"items": [{"unresolved": True}, None]},
        {"items": [{"unresolved": 1e400}, None]},
        {"items": [{"unresolved": "1"}, None]},
        {"items": [{"arch": 5}, None]},
        {"items": [{"arch": "x" * 5000}, None]},
        {"items": [{"arch": "\ud800"}, None]},
        {"items": [{"arch": {"unknown": ["x"]}}, None]},
        {"items": [{"arch": {}}, None]},
        {"items": [{"package": "torch"}, None]},
        {"items": [[], None]},
        {"items": {"a": 1}},
        {"items": None},
        {"why": 5},
        {"key": None},
    ],
    ids=str,
)
def test_an_entry_of_another_shape_is_ignored(tmp_path: Path, change: Mapping[str, Any]) -> None:
    cache(tmp_path).put(RESULT)
    (path,) = (tmp_path / "abi").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert cache(tmp_path).get() is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"[" * 200_000, b"\xff", b"9" * 5000, b" " * (2 << 20)], ids=range(7)
)
def test_an_entry_that_is_no_document_is_ignored(tmp_path: Path, content: bytes) -> None:
    cache(tmp_path).put(RESULT)
    (path,) = (tmp_path / "abi").iterdir()
    path.write_bytes(content)
    assert cache(tmp_path).get() is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO here")
def test_a_pipe_or_a_link_in_the_place_of_an_entry_holds_nobody_up(tmp_path: Path) -> None:
    cache(tmp_path).put(RESULT)
    (path,) = (tmp_path / "abi").iterdir()
    path.unlink()
    os.mkfifo(path)
    assert cache(tmp_path).get() is None
    path.unlink()
    (tmp_path / "victim").write_text("mine")
    path.symlink_to(tmp_path / "victim")
    cache(tmp_path).put(RESULT)
    assert (tmp_path / "victim").read_text() == "mine"
    assert cache(tmp_path).get() == RESULT


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_an_edited_entry_gives_a_result_of_the_right_shape_or_none(tmp_path: Path, at: int, noise: bytes) -> None:
    cache(tmp_path).put(RESULT)
    (path,) = (tmp_path / "abi").iterdir()
    raw = path.read_bytes()
    path.write_bytes(raw[:at] + noise + raw[at + len(noise) :])
    found = cache(tmp_path).get()
    assert found is None or (isinstance(found[0], list) and (found[1] is None or isinstance(found[1], str)))


def test_writers_at_the_same_time_leave_whole_entries(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(20):
            cache(tmp_path).put(([{"unresolved": number}], None))
            found = cache(tmp_path).get()
            assert found is not None
            assert found[0][0] is not None
            assert found[0][0]["unresolved"] in range(8)

    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            write(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(os.listdir(tmp_path / "abi")) == 1


def test_a_file_is_told_from_another_by_size_time_and_sample(tmp_path: Path) -> None:
    path = tmp_path / "file.so"
    path.write_bytes(bytes(20_000))
    os.utime(path, ns=(5, 5))
    first = identity(str(path), Files())
    assert identity(str(path), Files()) == first
    for at in (0, 19_999):
        path.write_bytes(bytes(at) + b"x" + bytes(19_999 - at))
        os.utime(path, ns=(5, 5))
        assert identity(str(path), Files()) != first
    path.write_bytes(bytes(20_000))
    os.utime(path, ns=(6, 6))
    assert identity(str(path), Files()) != first
    path.unlink()
    assert identity(str(path), Files()) == [str(path), "No such file or directory"]
    assert identity("a\0b", Files()) == ["a\0b", "no path"]


@pytest.fixture
def read(site: Path, table: Mapping[str, Any], tmp_path: Path) -> Callable[[], Records]:
    """The value of ``extension``, with a cache."""

    def run() -> Records:
        layout = choose(None, str(site), None, environ={}, cwd=str(tmp_path))
        value = one(
            extension, layout, observe(layout).seen, rows=lambda name, part: table[part], cache=str(tmp_path / "cache")
        ).value
        assert isinstance(value, Records)
        return value

    return run


def test_the_second_run_reads_no_compiled_file(
    install: Callable[..., None], read: Callable[[], Records], site: Path, tmp_path: Path
) -> None:
    install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "old-abi.so"})
    first = read()
    (entry,) = (tmp_path / "cache" / "abi").iterdir()
    entry.write_text(entry.read_text().replace('"unresolved":1', '"unresolved":7'))
    assert read().items[0]["unresolved"] == 7
    entry.unlink()
    assert read() == first


@pytest.mark.parametrize("what", ["extension", "torch", "new package", "gone"])
def test_a_change_of_any_file_is_noticed(
    install: Callable[..., None], read: Callable[[], Records], site: Path, elf: Path, what: str
) -> None:
    install("flash-attn", "2.8.3", {"flash_attn_2_cuda.so": "good.so", "flash_attn_3.so": "good.so"})
    assert [item["unresolved"] for item in read()] == [0]
    if what == "extension":
        (site / "flash_attn_2_cuda.so").write_bytes((elf / "old-abi.so").read_bytes())
        assert [item["unresolved"] for item in read()] == [1]
    elif what == "torch":
        (site / "torch" / "lib" / "libc10.so").write_bytes((elf / "libtorch_cpu.so").read_bytes())
        assert [item["unresolved"] for item in read()] == [1]
    elif what == "new package":
        install("xformers", "0.0.35", {"xformers/_C.so": "cuda.so"})
        assert [item["missing_library"] for item in read()] == [ABSENT, "libc10_cuda.so"]
    else:
        (site / "torch" / "lib" / "libtorch_cpu.so").unlink()
        assert [item["unresolved"] for item in read()] == [Unknown("libraries of torch itself are missing")]
