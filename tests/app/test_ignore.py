"""Writing an ignore: the rest of the file stays as it is, and a fault changes nothing."""

import os
import stat
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from envdoctor.app import JobError, UsageProblem, load_configuration, write_ignore
from envdoctor.judge import Ignore


def ignore(start, rule="some-rule", reason="we patched it", until=None, where=None, config=None, **more):
    return write_ignore(Ignore(rule, reason, until, where or {}, **more), start=start, config=config)


def test_without_any_configuration_a_new_file_is_written(tmp_path):
    more = {"path": "experiments", "until_fixed": True}
    path = ignore(tmp_path, until=date(2027, 1, 31), where={"gpu.name": 'Tesla "T4"'}, **more)
    assert path == tmp_path / "envdoctor.toml"
    (entry,) = load_configuration(path).ignores
    assert (entry.id, entry.reason, entry.until) == ("some-rule", "we patched it", date(2027, 1, 31))
    assert (entry.where, entry.path, entry.until_fixed) == ({"gpu.name": 'Tesla "T4"'}, "experiments", True)
    ignore(tmp_path, "two")
    assert [entry.id for entry in load_configuration(path).ignores] == ["some-rule", "two"]


def test_what_ended_is_accepted_anew_and_what_holds_is_not_written_twice(tmp_path):
    path = ignore(tmp_path, until=date(2020, 1, 31))
    assert ignore(tmp_path, reason="again") == path
    assert [entry.reason for entry in load_configuration(path).ignores] == ["we patched it", "again"]
    with pytest.raises(UsageProblem, match="accepted there already"):
        ignore(tmp_path, reason="once more")


@pytest.mark.parametrize(
    ("name", "text", "fail_on"),
    [
        (
            "pyproject.toml",
            '# ours\n[project]\nname = "x"  # keep\n\n[tool.envdoctor]\nfail-on = "note"  # a\n',
            "note",
        ),
        ("pyproject.toml", '[project]\nname = "x"\n', None),
        ("envdoctor.toml", 'fail-on = "note"\n', "note"),
        ("envdoctor.toml", '[tool.envdoctor]\nfail-on = "note"\n', "note"),
    ],
)
def test_it_is_written_into_the_projects_file_and_nothing_else_changes(tmp_path, name, text, fail_on):
    (tmp_path / name).write_text(text)
    (tmp_path / "src").mkdir()
    path = ignore(tmp_path / "src" if fail_on else tmp_path)  # below, what says nothing of envdoctor is not found
    assert path == tmp_path / name and path.read_text().startswith(text)
    found = load_configuration(path)
    assert found.fail_on == fail_on and found.ignores[0].id == "some-rule"


def test_line_ends_the_mode_of_the_file_and_a_link_are_kept(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_bytes(b'[project]\r\nname = "x"\r\n')
    path.chmod(0o640)
    ignore(tmp_path)
    data = path.read_bytes()
    assert data.startswith(b'[project]\r\nname = "x"\r\n') and data.count(b"\n") == data.count(b"\r\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    (tmp_path / "real.toml").write_text("")
    (tmp_path / "envdoctor.toml").symlink_to("real.toml")
    ignore(tmp_path)
    assert (tmp_path / "envdoctor.toml").is_symlink() and "some-rule" in (tmp_path / "real.toml").read_text()


INLINE = "is written inline there; add the entry by hand"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("envdoctor.toml", "ignore = []\n", INLINE),
        ("pyproject.toml", '[tool]\nenvdoctor = { ignore = [{ id = "a", reason = "b" }] }\n', INLINE),
        ("pyproject.toml", '[tool.envdoctor]\nignore = [{ id = "a", reason = "b" }]\n', INLINE),
        ("envdoctor.toml", "fail-on = 'fatal'\n", "fail-on"),
    ],
)
def test_an_inline_list_and_a_file_that_is_wrong_are_left_to_the_person(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageProblem, match=said):
        ignore(tmp_path)
    assert (tmp_path / name).read_text() == text and [p.name for p in tmp_path.iterdir()] == [name]


def test_when_writing_fails_nothing_is_left_behind(tmp_path, monkeypatch):
    def refuse(source: str, target: str) -> None:
        raise OSError(28, "it is full")

    with pytest.raises(JobError, match="cannot be written"):
        ignore(tmp_path, config=tmp_path / "no" / "such.toml")
    (tmp_path / "envdoctor.toml").write_text("# mine\n")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(JobError, match="it is full"):
        ignore(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["envdoctor.toml"]
    assert (tmp_path / "envdoctor.toml").read_text() == "# mine\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(reason="caf\udce9", where={})
@given(st.text(min_size=1, max_size=30).filter(str.strip), st.dictionaries(st.text(max_size=8), st.text(max_size=8)))
def test_any_reason_is_read_back_as_it_was_given(tmp_path: Path, reason: str, where: dict[str, str]) -> None:
    path = tmp_path / "envdoctor.toml"
    path.unlink(missing_ok=True)
    ignore(tmp_path, reason=reason, where=where)
    (entry,) = load_configuration(path).ignores
    assert entry.reason == reason.encode("utf-8", "replace").decode()
    assert entry.where == where
