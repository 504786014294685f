"""A local directory as a snapshot."""

import hashlib
import os

import pytest
from loopback import text, virtual
from small_models import header, why

from envdoctor.revision import SnapshotError, open_folder


def test_small_files_have_the_oid_that_the_hub_gives_them(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.model").write_bytes(b"pieces")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text("a = 1\n")
    snapshot = open_folder(str(tmp_path), "./model")
    assert snapshot.files["config.json"].oid == "sha1:" + text("{}").git_oid
    assert snapshot.files["tokenizer.model"].oid == "sha256:" + hashlib.sha256(b"pieces").hexdigest()
    assert snapshot.files["sub/a.py"].oid == "sha1:" + text("a = 1\n").git_oid
    assert (snapshot.label, snapshot.asked, snapshot.repo, snapshot.revision) == ("./model", "./model", None, None)
    assert snapshot.read("sub/a.py", 10) == b"a = 1\n"
    assert why(snapshot.read("sub/a.py", 5)) and why(snapshot.read("nothing", 5))


def test_large_files_are_not_hashed_and_their_headers_are_read(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(header())
    os.truncate(tmp_path / "m.safetensors", 80 << 20)
    snapshot = open_folder(str(tmp_path))
    assert snapshot.files["m.safetensors"] == ("m.safetensors", 80 << 20, None)
    assert snapshot.headers(["m.safetensors"])["m.safetensors"] == header()
    size = 80 << 20
    parts = [snapshot.read_range("m.safetensors", *part) for part in ((0, 8), (size - 3, 3), (4, 0))]
    assert parts == [header()[:8], bytes(3), b""]
    assert all(why(snapshot.read_range("m.safetensors", start, 2)) for start in (size - 1, -1))
    # the note of a download proves nothing
    note = tmp_path / ".cache" / "huggingface" / "download" / "m.safetensors.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{'a' * 40}\n{'b' * 64}\n{(tmp_path / 'm.safetensors').stat().st_mtime}\n")
    assert open_folder(str(tmp_path)).files["m.safetensors"].oid is None


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 8, b"\xff" * 20])
def test_a_file_that_is_no_safetensors_comes_back_for_the_reader_of_headers_to_name(tmp_path, content):
    (tmp_path / "m.safetensors").write_bytes(content)
    assert open_folder(str(tmp_path)).headers(["m.safetensors"])["m.safetensors"] == content[:8]


def test_an_lfs_pointer_names_the_oid_and_cannot_be_read(tmp_path):
    blob = virtual(header(), 5_000_000_000)
    (tmp_path / "m.safetensors").write_bytes(blob.pointer)
    snapshot = open_folder(str(tmp_path))
    assert snapshot.files["m.safetensors"] == ("m.safetensors", 5_000_000_000, "sha256:" + blob.sha256)
    assert "git lfs pull" in why(snapshot.headers(["m.safetensors"])["m.safetensors"])
    assert why(snapshot.read("m.safetensors", 1000))


def test_what_is_about_the_folder_is_left_out(tmp_path):
    for name in (".git", ".cache", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")
    (tmp_path / ".gitattributes").write_text("")
    assert list(open_folder(str(tmp_path)).files) == [".gitattributes"]


def test_links_out_of_the_folder_are_refused_and_links_inside_are_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "out.json").symlink_to(tmp_path / "secret")
    (model / "up").symlink_to("..")
    (model / "loop").symlink_to("loop")
    (model / "same.json").symlink_to("config.json")
    (model / "folder").symlink_to("sub")
    snapshot = open_folder(str(model))
    assert sorted(snapshot.files) == ["config.json", "same.json"]
    assert sorted(unread.path for unread in snapshot.refused) == ["folder", "loop", "out.json", "up"]
    assert why(snapshot.read("out.json", 10))


def test_pipes_and_odd_names_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a\x1b[31m").write_text("x")
    snapshot = open_folder(str(tmp_path))
    assert not snapshot.files
    assert len(snapshot.refused) == 2
    assert all(unread.path.isprintable() for unread in snapshot.refused)


def test_what_is_no_folder(tmp_path):
    with pytest.raises(SnapshotError) as caught:
        open_folder(str(tmp_path / "nothing"))
    assert caught.value.kind == "usage"
