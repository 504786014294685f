"""The file of pins: what it holds, what differs from it, and how it is refused."""

import errno
import json
import os
from pathlib import Path

import pytest
from loopback import text, virtual

from envdoctor.revision import (
    PINS,
    Access,
    PinError,
    compare_with_pin,
    find_pins,
    open_snapshot,
    pin_of,
    pins_text,
    read_pins,
)

SAME = ("same", [], [])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "modeling.py").write_text("a = 1")
    return folder


@pytest.fixture
def pin(model):
    return pin_of(opened(model))[0]


def opened(model, everything=False):
    """The folder; ``everything``: large files are read to the end."""
    return open_snapshot(str(model), None, Access("", {}, hash=everything))


def compared(pin, model, everything=False):
    return compare_with_pin(pin, opened(model, everything))


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / PINS).write_text(text)
    return str(tmp_path / PINS)


def test_what_was_pinned_is_read_again_and_what_cannot_be_pinned_is_said(tmp_path, model, pin):
    assert read_pins(written(tmp_path, pins_text([pin]))) == {pin.repo: pin}
    (tmp_path / "secret").write_text("x")
    (model / "secret.json").symlink_to(tmp_path / "secret")
    with open(model / "model.safetensors", "wb") as file:
        file.truncate(65 << 20)
    assert [part.path for part in pin_of(opened(model))[1]] == ["secret.json", "model.safetensors"]


def test_one_request_pins_a_repository(hub, repo, access):
    pin, unread = pin_of(open_snapshot("zai-org/tiny", None, access()))
    assert (pin.revision, unread, len(hub.log)) == (repo.commits[0].id, [], 1)
    assert pin.files["m.safetensors"].startswith("sha256:") and pin.files["modeling.py"].startswith("sha1:")


def test_changed_added_and_removed_files_that_are_loaded_differ_and_logs_do_not(model, pin):
    (model / "trainer_state.json").write_text("{}")
    (model / "trainer.log").write_text("x")
    assert compared(pin, model) == SAME
    (model / "modeling.py").write_text("a = 2")
    (model / "more.py").write_text("b = 1")
    (model / "config.json").unlink()
    assert compared(pin, model) == ("changed", ["config.json", "modeling.py", "more.py"], [])


def test_a_note_of_a_download_does_not_vouch_for_changed_code(model, pin):
    (model / "modeling.py").write_text("a = 2")
    note = model / ".cache" / "huggingface" / "download" / "modeling.py.metadata"
    note.parent.mkdir(parents=True)
    changed = (model / "modeling.py").stat().st_mtime
    note.write_text(f"{'a' * 40}\n{pin.files['modeling.py'].partition(':')[2]}\n{changed}\n")
    assert compared(pin, model).differing == ["modeling.py"]


@pytest.mark.parametrize("kind", ["link out", "dangling", "pipe"])
def test_what_cannot_be_read_is_not_the_same(tmp_path, model, pin, kind):
    place = model / "modeling.py"
    place.rename(tmp_path / "modeling.py")
    if kind == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("needs named pipes")
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / ("modeling.py" if kind == "link out" else "nothing"))
    found = compared(pin, model)
    assert found.state is None or found.differing
    assert [part.path for part in found.unsure] == ["modeling.py"] or found.differing == ["modeling.py"]


def test_a_file_is_compared_by_the_kind_of_object_id_that_was_pinned(model, pin):
    (model / "tokenizer.model").write_bytes(b"x" * 1000)
    for oid in ("sha1:" + text(b"x" * 1000).git_oid, "sha256:" + virtual(b"x" * 1000).sha256):
        pin = pin._replace(files={**pin.files, "tokenizer.model": oid})
        assert compared(pin, model) == SAME
        (model / "tokenizer.model").write_bytes(b"x" * 999 + b"y")
        assert compared(pin, model).differing == ["tokenizer.model"]
        (model / "tokenizer.model").write_bytes(b"x" * 1000)


def test_a_large_file_is_not_called_the_same_before_it_was_read(model):
    with open(model / "pytorch_model.bin", "wb") as file:
        file.truncate(65 << 20)
    pin, _ = pin_of(opened(model, True))
    assert compared(pin, model).state is None
    assert compared(pin, model, True).state == "same"
    with open(model / "pytorch_model.bin", "r+b") as file:
        file.seek(60 << 20)
        file.write(b"x")
    assert compared(pin, model, True).state == "changed"


def test_the_nearest_file_up_to_the_project_counts(tmp_path):
    (tmp_path / "project" / "deep").mkdir(parents=True)
    written(tmp_path, "{}")
    assert find_pins(str(tmp_path / "project" / "deep")) == str(tmp_path / PINS)
    (tmp_path / "project" / ".git").mkdir()
    assert find_pins(str(tmp_path / "project" / "deep")) is None


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("", "not JSON"),
        ("[]", "is expected"),
        ({"schema": "envdoctor.lock/1"}, "envdoctor pin REPO` writes it"),
        ({"schema": "envdoctor.pins/1", "models": []}, "models: a table is expected"),
        ({"schema": "envdoctor.pins/1", "models": {"a/b": 1}}, "a/b: a table is expected"),
        ({"schema": "envdoctor.pins/1", "models": {"a/b": {"files": {"x": 1}}}}, "files: a table of texts"),
        ({"schema": "envdoctor.pins/1", "models": {"a/b": {"revision": 1}}}, "revision: a text"),
    ],
)
def test_a_file_of_another_shape_is_refused_by_its_name(tmp_path, document, why):
    path = written(tmp_path, document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(PinError, match=why) as caught:
        read_pins(path)
    assert str(caught.value).startswith(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_file_in_its_place_is_refused_and_not_waited_for(tmp_path):
    place = tmp_path / PINS
    links = (lambda path: path.symlink_to("/nowhere"), os.strerror(errno.ENOENT))
    for make, why in ((os.mkfifo, "it is not a regular file"), links):
        make(place)
        assert find_pins(str(tmp_path)) == str(place)
        with pytest.raises(PinError, match=why):
            read_pins(str(place))
        place.unlink()
