"""The file of pins: what it holds, what differs from it, and how it is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from envdoctor.hub.folder import open_folder
from envdoctor.hub.pins import PINS, PinError, compare_with_pin, find_pins, pin_of, pins_text, read_pins


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "modeling.py").write_text("a = 1")
    return folder


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / PINS).write_text(text)
    return str(tmp_path / PINS)


def test_what_was_pinned_is_read_again(tmp_path, model):
    pin, unread = pin_of(open_folder(str(model), "org/model"))
    assert unread == []
    assert read_pins(written(tmp_path, pins_text([pin]))) == {"org/model": pin}


def test_changed_and_added_code_differs_and_logs_do_not(model):
    pin, _ = pin_of(open_folder(str(model)))
    (model / "trainer.log").write_text("x")
    (model / "config.json").unlink()
    assert compare_with_pin(pin, open_folder(str(model))) == ("same", [])
    (model / "modeling.py").write_text("a = 2")
    (model / "more.py").write_text("b = 1")
    assert compare_with_pin(pin, open_folder(str(model))) == ("changed", ["modeling.py", "more.py"])


def test_a_link_that_leads_out_of_the_folder_is_not_pinned_silently(tmp_path, model):
    (tmp_path / "secret").write_text("x")
    (model / "secret.json").symlink_to(tmp_path / "secret")
    _, unread = pin_of(open_folder(str(model)))
    assert [part.path for part in unread] == ["secret.json"]


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
def test_a_pipe_in_its_place_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / PINS)
    path = find_pins(str(tmp_path))
    assert path is not None
    with pytest.raises(PinError, match="it is not a regular file"):
        read_pins(path)
