"""Python files that are made to hurt whoever reads them: nothing runs, nothing hangs, nothing is called unchanged."""

import os
import sys
from pathlib import Path

import pytest
from comparing import outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rooms import comparer

from envdoctor.revision import CodeSource, Compared, FileCode, Unread, parse
from envdoctor.revision.code.parts.tree import read_code
from envdoctor.source import TooMuch

remote_code = comparer("remote_code")

PLAIN = b"x = 1\n"


def compare(new: bytes) -> Compared:
    old = dict.fromkeys(("a.py", "b.py", "c.py"), PLAIN)
    return outcome(remote_code, old, {"a.py": b"x = 2\n", "b.py": new, "c.py": b"x = 3\n"})


def reason(compared: Compared) -> str:
    """Why ``b.py`` is unread; its neighbours were compared all the same."""
    assert [one.path for one in compared.unread] == ["b.py"]
    assert {"a.py", "c.py"} <= {change.path for change in compared.changes if change.kind == "definition-changed"}
    return compared.unread[0].reason


def test_code_that_would_write_a_file_if_it_ran_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "pwned"
    write = f"open({str(target)!r}, 'w')"
    text = f"{write}.write('x')\ndef f(a={write}): pass\nclass A({write}): pass\n"
    compared = compare(text.encode())
    assert compared.unread == ()
    assert "file-write-added" in {change.kind for change in compared.changes}
    assert not target.exists()
    assert os.listdir(tmp_path) == []


HARD = {
    "parentheses": b"x = " + b"(" * 500_000 + b"1" + b")" * 500_000,
    "brackets": b"x = " + b"[" * 1_000_000,
    "signs": b"x = " + b"-" * 1_000_000 + b"1",
    "attributes": b"x = a" + b".a" * 500_000,
    "sums": b"x = a" + b"+a" * 500_000,
    "not": b"x = " + b"not " * 200_000 + b"1",
    "lambda": b"x = " + b"lambda:" * 140_000 + b"1",
    "blocks": b"if 1:\n" + b"".join(b" " * n + b"if 1:\n" for n in range(1, 1000)) + b" " * 1000 + b"x = 1\n",
    "decorators": b"@a\n" * 300_000 + b"def f(): pass\n",
    "f-strings": b"x = f'" + b"{f'" * 1000,
    "small nodes": b"x=0\n" * 250_000,
    "calls": b"def f():\n" + b" eval(a,b=1)\n" * 75_000,
}


@pytest.mark.parametrize("new", HARD.values(), ids=HARD)
def test_deep_and_long_files_are_compared_or_unread(new: bytes) -> None:
    compared = compare(new)
    assert compared.unread or any(change.path == "b.py" for change in compared.changes)
    if compared.unread:
        assert reason(compared).startswith("it ")


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (b"x = " + b"(" * 500_000 + b")" * 500_000, "pars"),
        (b"x = 1\0\n", ""),
        *((b"# -*- coding: " + coding + b" -*-\nx = '\xff'\n", "") for coding in b"none hex rot13 zip idna".split()),
        (b"x = '\xff\xfe'\n", ""),
        (b"#" * (1 << 20) + b"#", "bytes"),
    ],
)
def test_what_is_no_python_is_unread(new: bytes, why: str) -> None:
    assert why in reason(compare(new))


def test_code_that_a_coding_hides_is_read_as_python_would() -> None:
    # +AAo- is a line feed in UTF-7
    compared = compare(b"# coding: utf-7\nx = 1 # +AAo-import os+AAo-os.system('id')\n")
    assert "exec-call-added" in {change.kind for change in compared.changes}


def test_ten_thousand_definitions_are_summed_up() -> None:
    names = "".join(f"def {chr(97 + index % 26)}{index:x}():0\n" for index in range(10_000))
    compared = compare(names.encode())
    if not compared.unread:
        assert len(compared.changes) < 300
        assert max(change.count for change in compared.changes) > 9_000


def test_too_many_files_are_named_as_unread() -> None:
    compared = outcome(remote_code, *({f"f{index}.py": text for index in range(250)} for text in (b"x = 1", b"x = 2")))
    assert (len(compared.unread), len(compared.changes)) == (50, 200)


def test_control_characters_of_names_and_values_do_not_become_raw() -> None:
    compared = compare("x = '\x1b[31m\u202e\x07'\ny = '''a\nb'''\n".encode())
    for change in compared.changes:
        for text in (change.symbol, change.before, change.after, change.detail):
            assert text is None or not any(letter in text for letter in "\x1b\u202e\x07\n"), change


def test_lone_surrogates_and_huge_numbers_are_carried() -> None:
    compared = compare(b"x = '\\ud800'\ny = 0x" + b"f" * 100_000 + b"\nz = 1e999\n")
    assert compared.unread == ()
    for change in compared.changes:
        (change.after or "").encode()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_a_child_that_dies_takes_only_its_file_along() -> None:
    heavy = b"x=" + b"[a for a in b]," * 66_000
    results = parse(
        [CodeSource("a.py", PLAIN), CodeSource("b.py", heavy), CodeSource("c.py", PLAIN), CodeSource("d.py", PLAIN)]
    )
    assert isinstance(results[1], (FileCode, Unread))
    assert all(isinstance(result, FileCode) for result in (results[0], *results[2:]))


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet=st.sampled_from("abx01=(),.:[]{}+*-@ \n'\"\\#lambdeifr"), max_size=80))
def test_any_text_is_read_or_refused_with_a_known_error(text: str) -> None:
    try:
        assert isinstance(read_code(text.encode()), FileCode)
    except (TooMuch, SyntaxError, RecursionError, MemoryError):
        pass
