"""A change of files is undone to the byte, however it ended, and nothing outside of them is written."""

import json
import os

import pytest

from envdoctor.system.undo import Busy, NoRoom, Undo


def tree(folder):
    """A folder of a package with a link, and what is known of it."""
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "one.py").write_text("1")
    (folder / "pkg" / "two.py").write_text("2")
    (folder / "pkg" / "two.py").chmod(0o600)
    (folder / "link").symlink_to("pkg/one.py")
    (folder / "empty").mkdir(mode=0o700)
    for path in sorted(folder.rglob("*"), reverse=True):
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)
    return seen(folder)


def seen(folder):
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.is_file() and path.read_bytes(),
        )
        for path in [folder, *folder.rglob("*")]
        if ".undo" not in path.parts
    }


def damage(folder):
    """Whatever a change can do: a file gone, one written into, a link for a folder, a folder for a link."""
    (folder / "pkg" / "one.py").unlink()
    (folder / "pkg" / "two.py").write_text("other")
    (folder / "pkg" / "two.py").chmod(0o644)
    (folder / "link").unlink()
    (folder / "link").mkdir()
    (folder / "link" / "inner").write_text("new")
    (folder / "empty").rmdir()
    (folder / "empty").symlink_to("/")
    (folder / "new" / "deep").mkdir(parents=True)
    (folder / "new" / "deep" / "x.py").write_text("new")


def test_what_was_changed_removed_or_added_is_undone(tmp_path):
    before = tree(tmp_path)
    undo = Undo(str(tmp_path / ".undo"), [str(tmp_path)])
    assert not undo.take()
    undo.copy(lambda path: "pkg" in path, ["uv", "pip"])
    damage(tmp_path)
    undo.release()
    later = Undo(str(tmp_path / ".undo"), [str(tmp_path)])
    assert later.take() and later.about() == ("uv", "pip")
    assert later.put_back() == []
    later.discard()
    assert seen(tmp_path) == before and not (tmp_path / ".undo").exists()


def test_a_file_that_others_share_is_not_written_into(tmp_path):
    before = tree(tmp_path / "env")
    os.link(tmp_path / "env" / "pkg" / "two.py", tmp_path / "shared.py")
    undo = Undo(str(tmp_path / "env" / ".undo"), [str(tmp_path / "env")])
    undo.take()
    undo.copy(lambda path: True, [])
    (tmp_path / "env" / "pkg" / "two.py").unlink()
    (tmp_path / "env" / "pkg" / "two.py").write_text("new")
    assert undo.put_back() == []
    undo.discard()
    assert (tmp_path / "shared.py").read_text() == "2" and seen(tmp_path / "env") == before


def test_a_file_without_a_copy_is_named(tmp_path):
    tree(tmp_path)
    undo = Undo(str(tmp_path / ".undo"), [str(tmp_path)])
    undo.take()
    undo.copy(lambda path: path.endswith("one.py"), [])
    damage(tmp_path)
    assert undo.put_back() == [str(tmp_path / "pkg" / "two.py")]


def test_one_process_at_a_time_has_it_and_a_folder_of_others_is_refused(tmp_path):
    undo = Undo(str(tmp_path / ".undo"), [str(tmp_path)])
    undo.take()
    with pytest.raises(Busy):
        Undo(str(tmp_path / ".undo"), [str(tmp_path)]).take()
    undo.release()
    (tmp_path / ".undo").chmod(0o777)
    with pytest.raises(PermissionError):
        Undo(str(tmp_path / ".undo"), [str(tmp_path)]).take()


def test_a_copy_that_would_fill_the_disk_is_not_begun(tmp_path):
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 43)
    undo = Undo(str(tmp_path / ".undo"), [str(tmp_path)])
    undo.take()
    with pytest.raises(NoRoom):
        undo.copy(lambda path: True, [])
    undo.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["sparse"]


def test_a_journal_of_others_does_not_lead_out_of_the_environment(tmp_path):
    (env := tmp_path / "env").mkdir()
    (outside := tmp_path / "outside").mkdir()
    (env / "a").write_text("planted")
    undo = Undo(str(env / ".undo"), [str(env)])
    undo.take()
    undo.copy(lambda path: True, ["words"])
    journal = env / ".undo" / "journal.json"
    told = json.loads(journal.read_text())
    away = [*told["entries"][str(env / "a")]]
    told["entries"] |= {str(env / "b"): ["link", *away[1:-1], str(outside)], str(env / "b" / "a"): away}
    told["files"] = [str(env / "b" / "a")]
    journal.write_text(json.dumps(told))
    assert str(env / "b" / "a") in undo.put_back()
    assert list(outside.iterdir()) == []
