"""What --model can mean, and the sentences for what it cannot."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.observe import ObservationError, resolve

links = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege on Windows")


def refusal(disk, model: str) -> str:
    with pytest.raises(ObservationError) as caught:
        disk.resolve(model)
    return str(caught.value)


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


def test_another_file_is_no_model(disk):
    disk.folder(files={"model.gguf": ""})
    assert "is a file: give config.json, or the folder that holds it" in refusal(disk, "model/model.gguf")


def test_the_home_folder_is_expanded_from_the_callers_variables(disk):
    (disk.home / "m").mkdir()
    assert disk.resolve("~/m").folder == str(disk.home / "m")


@pytest.mark.parametrize(
    "path", ["./x", "../x", "/no/where", "~/x", "a/b/c", "x/config.json", "x.json", "C:\\x", "C:/x", "x/", "a\\b"]
)
def test_a_path_where_nothing_is_gives_one_sentence(disk, path):
    assert refusal(disk, path) == f"--model {path}: no such folder"


@pytest.mark.parametrize("text", ["", "  ", "a\0b"])
def test_nothing_is_no_model(disk, text):
    assert refusal(disk, text).endswith("is no name: give ORG/NAME or a folder")


@pytest.mark.parametrize(
    "text", ["a b/c", "模型", "-x/y", "x/y.", "a--b/c", "a/b..c", "x" * 97, "a/b.git", "@main", "a\u202eb"]
)
def test_what_the_hub_would_refuse_is_refused(disk, text):
    assert "neither a folder nor a repository name" in refusal(disk, text)


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "./\x1b]0;title\x07", "a/\u202egnp.exe", "x\n--model fine"])
def test_escape_codes_do_not_reach_the_sentence(disk, text):
    assert refusal(disk, text).isprintable()


def test_a_very_long_text_is_refused_shortly(disk):
    assert len(refusal(disk, "a/" * 500_000)) <= 1000


@pytest.mark.parametrize(
    "url", ["https://huggingface.co/Qwen/Qwen2.5-7B", "https://hf-mirror.com/Qwen/Qwen2.5-7B/tree/main"]
)
def test_the_address_of_a_page_names_the_repository(disk, url):
    assert disk.resolve(url).repo == "Qwen/Qwen2.5-7B"


@pytest.mark.parametrize("revision", ["../../etc", "a b", "", "-x", "\x1b[0m"])
def test_a_revision_must_look_like_one(disk, revision):
    assert "not a revision" in refusal(disk, f"Qwen/Qwen2.5-7B@{revision}")


@links
def test_a_link_in_a_circle_is_named(disk):
    (disk.cwd / "a").symlink_to("b")
    (disk.cwd / "b").symlink_to("a")
    assert "leads nowhere or in a circle" in refusal(disk, "a")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_model(disk):
    os.mkfifo(disk.cwd / "pipe")
    assert "neither a folder nor a file" in refusal(disk, "./pipe")


@given(st.text(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_model_or_one_printable_sentence(disk, text):
    try:
        source = resolve(text, cwd=str(disk.cwd), environ=disk.environ)
    except ObservationError as error:
        assert str(error).isprintable()
    else:
        assert source.folder or source.missing
