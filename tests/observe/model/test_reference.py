"""What --model can mean, the sentences for what it cannot, and the names of a vendor."""

import os
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.observe import NamedModel, ObservationError, is_repo_name, is_revision, parse_name, resolve, spellings

ALIASES = {"THUDM": "zai-org", "ZhipuAI": "zai-org", "old/name": "new/name2"}
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
        (["ms:a/b"], "is not read; download the model and give its folder"),
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
        (["b098244", "74d61a6fc5" * 4], "is a commit: give the model before it"),
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
    ("given", "named"),
    [
        ("THUDM/tiny", NamedModel(None, "THUDM/tiny", None)),
        ("gpt2", NamedModel(None, "gpt2", None)),
        ("THUDM/tiny@b098244", NamedModel(None, "THUDM/tiny", "b098244")),
        ("THUDM/tiny@refs/pr/3", NamedModel(None, "THUDM/tiny", "refs/pr/3")),
        ("https://huggingface.co/THUDM/tiny", NamedModel(None, "THUDM/tiny", None)),
        ("https://hf-mirror.com/THUDM/tiny/tree/b098244", NamedModel(None, "THUDM/tiny", "b098244")),
        ("https://huggingface.co/THUDM/tiny/commit/b098244/", NamedModel(None, "THUDM/tiny", "b098244")),
    ],
)
def test_names(given, named, tmp_path):
    assert parse_name(given, str(tmp_path), {}) == named


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen2.5-7B", "01-ai/Yi-6B", "_x/y_", "a/" + "b" * 96])
def test_names_of_the_hub_are_names(name):
    assert is_repo_name(name)


@pytest.mark.parametrize("text", ["", "-x", "a b", "..", "a/../b", "a\nb", "x" * 256, "a:b", "\x1b[0m"])
def test_what_git_would_refuse_is_no_revision(text):
    assert not is_revision(text)


@pytest.mark.parametrize(
    ("repo", "names"),
    [
        ("zai-org/glm", ["zai-org/glm", "THUDM/glm", "ZhipuAI/glm"]),
        ("thudm/glm", ["thudm/glm", "THUDM/glm", "ZhipuAI/glm", "zai-org/glm"]),
        ("old/name", ["old/name", "new/name2"]),
        ("gpt2", ["gpt2"]),
    ],
)
def test_a_vendor_has_several_names(repo, names):
    assert spellings(repo, ALIASES) == names


@given(st.text(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_model_or_one_printable_sentence(disk, text):
    try:
        source = resolve(text, cwd=str(disk.cwd), environ=disk.environ)
    except ObservationError as error:
        assert str(error).isprintable()
    else:
        assert source.folder or source.missing
