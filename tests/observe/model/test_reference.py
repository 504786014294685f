"""What --model can mean, and the sentences for what it cannot."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.observe import ObservationError, resolve

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes, and links without a privilege")


def refusal(disk, model: str) -> str:
    with pytest.raises(ObservationError) as caught:
        disk.resolve(model)
    text = str(caught.value)
    assert text.isprintable() and len(text) <= 1000
    return text


def test_a_folder_is_read(disk):
    folder = disk.folder()
    source = disk.resolve("./model")
    assert (source.folder, source.repo, source.origin) == (str(folder), None, "--model")


def test_an_existing_folder_wins_over_a_repository_of_that_name(disk):
    folder = disk.folder("Qwen/Qwen2.5-7B-Instruct")
    disk.cached()
    assert disk.resolve("Qwen/Qwen2.5-7B-Instruct").folder == str(folder)


def test_config_json_means_its_folder(disk):
    assert disk.resolve(str(disk.folder() / "config.json")).folder == str(disk.cwd / "model")


def test_the_home_folder_is_expanded_from_the_callers_variables(disk):
    (disk.home / "m").mkdir()
    assert disk.resolve("~/m").folder == str(disk.home / "m")


@pytest.mark.parametrize(
    "path", ["./x", "../x", "/no/where", "~/x", "a/b/c", "x/config.json", "x.json", "C:\\x", "C:/x", "x/", "a\\b"]
)
def test_a_path_where_nothing_is_gives_one_sentence(disk, path):
    assert refusal(disk, path) == f"--model {path}: no such folder"


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["./\x1b]0;title\x07"], "no such folder"),
        (["", "  ", "a\0b", "a/" * 500_000], "is no name: give ORG/NAME or a folder"),
        (
            ["a b/c", "模型", "-x/y", "x/y.", "a--b/c", "a/b..c", "x" * 97, "a/b.git", "@main", "a\u202eb"],
            "neither a folder nor a repository name",
        ),
        (["\x1b[31mred\x1b[0m", "a/\u202egnp.exe", "x\n--model fine"], "neither a folder nor a repository name"),
        ([f"Qwen/Qwen2.5-7B@{name}" for name in ("../../etc", "a b", "", "-x", "\x1b[0m")], "not a revision"),
        pytest.param(["./pipe"], "neither a folder nor a file", marks=posix),
        pytest.param(["link"], "leads nowhere or in a circle", marks=posix),
        (["model/model.gguf"], "is a file: give config.json, or the folder that holds it"),
    ],
)
def test_what_is_no_model_is_refused(disk, texts, sentence):
    disk.folder(files={"model.gguf": ""})
    if sys.platform != "win32":
        os.mkfifo(disk.cwd / "pipe")
        (disk.cwd / "link").symlink_to("back")
        (disk.cwd / "back").symlink_to("link")
    for text in texts:
        assert sentence in refusal(disk, text)


@pytest.mark.parametrize(
    "url", ["https://huggingface.co/Qwen/Qwen2.5-7B", "https://hf-mirror.com/Qwen/Qwen2.5-7B/tree/main"]
)
def test_the_address_of_a_page_names_the_repository(disk, url):
    assert disk.resolve(url).repo == "Qwen/Qwen2.5-7B"


@given(st.text(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_model_or_one_printable_sentence(disk, text):
    try:
        source = resolve(text, cwd=str(disk.cwd), environ=disk.environ)
    except ObservationError as error:
        assert str(error).isprintable()
    else:
        assert source.folder or source.missing
