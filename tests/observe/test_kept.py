"""What an environment's files said is said again without reading them, for as long as nothing of it has changed."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observing import ask, choose, write
from rooms import observer, observing

from envdoctor.facts import Fact, FactSet, Records, Value
from envdoctor.observe import Request
from envdoctor.observe.gather import gather, gather_kept
from envdoctor.system import Files, cache
from envdoctor.system.cache import sealed, unsealed

package_damage = observer("package_damage")
damage, link = observing("package_damage"), observing("link")

ROOMS = ("packages", "source")


@pytest.fixture(autouse=True)
def settled(monkeypatch) -> None:
    """The files of a test are new; here that does not matter."""
    monkeypatch.setattr(cache, "_TICK", -1 << 62)
    monkeypatch.setattr(cache, "_SLOW_TICK", -1 << 62)


@pytest.fixture
def folder(tmp_path: Path, make_dist: Callable[..., Path]) -> Path:
    """peft takes a name that transformers lacks; tokenizers has a library and its list."""
    site = tmp_path / "packages"
    header = "Metadata-Version: 2.1\nName: peft\nVersion: 0.17.0\nRequires-Dist: transformers>=4\n\n"
    make_dist(site, "peft", "0.17.0", header=header)
    make_dist(site, "transformers", "5.23.0")
    record = "tokenizers/core.so,,4\ntokenizers/__init__.py,,0\n"
    wheel = "Wheel-Version: 1.0\nTag: cp39-abi3-manylinux_2_17_x86_64\n"
    make_dist(site, "tokenizers", "0.22.1", INSTALLER="pip\n", RECORD=record, WHEEL=wheel)
    files = {
        "peft/__init__.py": "from .model import x\n",
        "peft/model.py": "x = 1\nfrom transformers import HybridCache\n",
        "transformers/__init__.py": "class Cache: ...\n",
        "tokenizers/__init__.py": "",
        "tokenizers/core.so": "\x7fELF",
    }
    return write(site, files)


@pytest.fixture
def read(folder: Path, tmp_path: Path) -> Callable[..., FactSet]:
    """Read the folder with a cache, as it is now."""

    def run(facts: Sequence[Fact] = (), **more: Any) -> FactSet:
        request = ask(choose(path=folder), facts=FactSet(facts))
        return gather_kept(request._replace(**{"cache": str(tmp_path / "cache"), "cwd": str(tmp_path), **more}), ROOMS)

    return run


def spelled(facts: FactSet) -> dict[str, str]:
    return {fact.key: repr(fact) for fact in facts}


def links(facts: FactSet) -> tuple[Mapping[str, Value], ...]:
    value = facts.value("link")
    assert isinstance(value, Records)
    return value.items


def test_the_second_run_opens_no_file_and_says_the_same(read, folder: Path, tmp_path: Path, monkeypatch) -> None:
    first = read()
    assert [item["name"] for item in links(first)] == ["transformers.HybridCache"]
    opened: list[str] = []
    once = Files.open
    monkeypatch.setattr(Files, "open", lambda files, path: (opened.append(path), once(files, path))[1])
    monkeypatch.setattr(link, "ask_once", lambda *given, **more: pytest.fail("a child was started"))
    second = read()
    assert [path for path in opened if path.startswith(str(folder))] == []
    assert spelled(second) == spelled(first)
    assert first.kept is not None and second.kept is not None
    assert second.kept.name == first.kept.name
    monkeypatch.undo()
    assert spelled(gather(ask(choose(path=folder), cwd=str(tmp_path)), ROOMS)) == spelled(first)


def in_place(path: Path, old: str, new: str) -> None:
    """Other content of the same size, and the time of change put back."""
    before = path.stat()
    assert len(old) == len(new)
    path.write_text(path.read_text().replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "requirement": lambda site: in_place(site / "peft-0.17.0.dist-info/METADATA", "transformers>=4", "transformers>=9"),
    "name": lambda site: (site / "transformers" / "__init__.py").write_text("class HybridCache: ...\n"),
    "module": lambda site: (site / "transformers" / "HybridCache.py").write_text(""),
    "library": lambda site: (site / "tokenizers" / "core.so").unlink(),
    "installed": lambda site: (site / "six-1.17.0.dist-info").mkdir(),
    "path": lambda site: (site / "more.pth").write_text("/nowhere\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_environment_is_seen(read, folder: Path, tmp_path: Path, change: str) -> None:
    first = spelled(read())
    CHANGES[change](folder)
    again = spelled(read())
    assert again != first or change == "path"
    assert again == spelled(gather(ask(choose(path=folder), cwd=str(tmp_path)), ROOMS))


def test_another_fact_or_table_is_another_question(read, monkeypatch) -> None:
    started: list[object] = []
    once = link.ask_once
    monkeypatch.setattr(link, "ask_once", lambda *given, **more: (started.append(given), once(*given, **more))[1])
    read([Fact("os.arch", "x86_64", "", "machine")])
    read([Fact("os.arch", "x86_64", "", "machine"), Fact("gpu.count", 2, "", "machine")])
    assert len(started) == 1
    read([Fact("os.arch", "aarch64", "", "machine")])
    assert len(started) == 2
    shipped = ask().rows

    def others(name: str, part: str = "row") -> Sequence[Mapping[str, Any]]:
        return [row for row in shipped(name, part) if row.get("name") != "tokenizers"]

    read([Fact("os.arch", "aarch64", "", "machine")], rows=others)
    assert len(started) == 3


def test_what_failed_is_tried_again(read, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(link, "LIMITS", link.LIMITS._replace(seconds=0.0))
        assert links(read()) == ()
    assert len(links(read())) == 1


def test_a_mistake_of_ours_is_not_kept(read, monkeypatch) -> None:
    monkeypatch.delenv("ENVDOCTOR_DEBUG", raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(damage, "_left_behind", lambda *given: 1 / 0)
        assert "ZeroDivisionError" in repr(read().value("package_damage"))
    assert isinstance(read().value("package_damage"), Records)


def test_what_rests_on_more_than_the_files_is_looked_at_every_time(read, monkeypatch) -> None:
    def with_directory(request: Request) -> list[tuple[str, Value, str]]:
        request.place.files.looks = None
        return [("package_damage", request.cwd, "")]

    monkeypatch.setattr(damage, "package_damage", package_damage._replace(find=with_directory))
    first = read()
    monkeypatch.setattr(link, "ask_once", lambda *given, **more: pytest.fail("a child was started"))
    assert read(cwd="/elsewhere").value("package_damage") == "/elsewhere"
    assert links(read()) == links(first)


def test_what_was_changed_just_now_is_not_kept(read, monkeypatch) -> None:
    monkeypatch.setattr(cache, "_TICK", 1 << 62)
    monkeypatch.setattr(cache, "_SLOW_TICK", 1 << 62)
    assert read().kept is None


def test_a_kept_observer_sees_no_variables(read, monkeypatch) -> None:
    seen: list[Mapping[str, str]] = []
    noting = package_damage._replace(
        find=lambda request: (seen.append(request.environ), package_damage.find(request))[1]
    )
    monkeypatch.setattr(damage, "package_damage", noting)
    read(environ={"HOME": "/root"})
    assert seen == [{}]


@pytest.fixture
def kept(read, tmp_path: Path) -> tuple[dict[str, str], Path, bytes]:
    """What a first run says, its entry in the cache, and the entry's content."""
    first = spelled(read())
    (entry,) = (tmp_path / "cache" / "facts").iterdir()
    return first, entry, entry.read_bytes()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1), st.binary(min_size=1, max_size=8))
def test_an_entry_that_was_damaged_is_none(read, kept, at: float, noise: bytes) -> None:
    first, entry, raw = kept
    place = int(at * (len(raw) - 1))
    entry.write_bytes(raw[:place] + noise + raw[place + len(noise) :])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link, "LIMITS", link.LIMITS._replace(seconds=0.0))
        again = spelled(read())
    entry.write_bytes(raw)
    assert again == first or "behind files that took all the time" in again["link"]


@pytest.mark.parametrize(
    "wrong", [b"", b"zz", b"[]", b"{}", {"facts": [7]}, {"facts": [["link", {"items": 7}, "", ""]]}]
)
def test_an_entry_of_other_content_is_none(read, kept, wrong: bytes | dict[str, Any]) -> None:
    first, entry, raw = kept
    data = bytes(unsealed(raw) or b"")
    end = 8 + int(data[:8], 16)
    told = wrong if isinstance(wrong, bytes) else json.dumps(json.loads(data[8:end]) | wrong).encode()
    entry.write_bytes(sealed(told if wrong in (b"", b"zz") else b"%08x" % len(told) + told + data[end:]))
    assert spelled(read()) == first
