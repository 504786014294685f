"""What a text names: a folder, or a repository and perhaps a revision of it."""

from __future__ import annotations

import pytest

from envdoctor.observe import NamedModel, NameProblem, is_repo_name, is_revision, parse_name, spellings

ALIASES = {"THUDM": "zai-org", "ZhipuAI": "zai-org", "old/name": "new/name2"}


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


def test_an_existing_folder_wins_over_a_repository(tmp_path):
    (tmp_path / "THUDM" / "tiny").mkdir(parents=True)
    (tmp_path / "THUDM" / "tiny" / "config.json").write_text("{}")
    for given in ("THUDM/tiny", "./THUDM/tiny/", "~/THUDM/tiny", "THUDM/tiny/config.json"):
        assert parse_name(given, str(tmp_path), {"HOME": str(tmp_path)}).folder == str(tmp_path / "THUDM" / "tiny")


@pytest.mark.parametrize("given", ["", " ", "\0", "./nothing", "/nothing", "a/b/c", "x" * 5000, "\x1b[31m", "ms:a/b"])
def test_what_names_nothing_is_a_mistake_of_use(given, tmp_path):
    with pytest.raises(NameProblem) as caught:
        parse_name(given, str(tmp_path), {})
    assert str(caught.value).isprintable()


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
