"""What a text names as a model, and its files in the Hub cache."""

import os
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import cases

from envdoctor.facts import ABSENT, Unknown
from envdoctor.observe import (
    NamedModel,
    ObservationError,
    cache_folder,
    cached_repos,
    commit_of_path,
    is_repo_name,
    is_revision,
    parse_name,
    resolve,
    spellings,
)

CASES = cases("names.toml")

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


@pytest.mark.parametrize(("repo", "names"), CASES["vendor_has_several"])
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


COMMIT = "b098244a71fbe69ce149682d9072a7629f7e908c"
OTHER = "37fe0008cbb3a1b2c3d4e5f60718293a4b5c6d7e"
REPO = "Qwen/Qwen2.5-7B-Instruct"


def test_a_repository_without_files_here_says_so(disk):
    facts = disk.facts(REPO)
    assert facts["model.repo"] == REPO
    assert facts["model.path"] is ABSENT
    reason = Unknown(f"no files of {REPO} on this machine; download them or give a folder")
    assert facts["model.type"] == facts["model.revision"] == facts["model.code_names"] == reason


@pytest.mark.parametrize("links", [False] if os.name == "nt" else [True, False])
def test_a_cached_snapshot_is_read_with_and_without_links(disk, links):
    snapshot = disk.cached(links=links)
    facts = disk.facts(REPO)
    named = [facts[f"model.{field}"] for field in ("repo", "revision", "path", "type")]
    assert named == [REPO, COMMIT, str(snapshot), "qwen2"]


def test_only_that_cache_is_looked_into(disk):
    disk.cached()
    disk.environ["HF_HUB_CACHE"] = str(disk.cwd / "elsewhere")
    assert disk.resolve(REPO).folder is None


@pytest.mark.parametrize("revision", [COMMIT, COMMIT[:7], "v1.0", "refs/pr/3"])
def test_a_revision_is_a_branch_a_tag_a_pull_request_or_a_commit(disk, revision):
    ref = revision if not COMMIT.startswith(revision) else None
    snapshot = disk.cached(ref=ref)
    source = disk.resolve(f"{REPO}@{revision}")
    assert (source.folder, source.revision, source.repo) == (str(snapshot), COMMIT, REPO)


@pytest.mark.parametrize(("ref", "asked"), [("main", "@v9"), (None, "")])
def test_those_that_are_here_are_listed_and_none_is_guessed(disk, ref, asked):
    disk.cached(ref=ref)
    source = disk.resolve(REPO + asked)
    assert source.folder is None
    assert "other revisions: b098244a71fb; name one with @" in source.missing


def test_an_ambiguous_beginning_of_a_commit_is_not_guessed(disk):
    disk.cached(ref=None)
    disk.cached(commit=COMMIT[:-1] + "0", ref=None)
    assert disk.resolve(f"{REPO}@{COMMIT[:9]}").folder is None


def test_main_points_to_one_of_two_snapshots(disk):
    disk.cached(commit=OTHER, ref=None)
    snapshot = disk.cached(ref="main")
    assert disk.resolve(REPO).folder == str(snapshot)


def test_a_reference_to_files_that_were_removed_is_a_reason(disk):
    snapshot = disk.cached()
    (snapshot / "config.json").unlink()
    snapshot.rmdir()
    assert "does not hold its files" in disk.resolve(REPO).missing


def test_a_reference_cannot_lead_out_of_the_cache(disk):
    disk.cached()
    disk.folder("secret")
    (disk.cache / "models--Qwen--Qwen2.5-7B-Instruct" / "refs" / "main").write_text("../../../../secret")
    assert disk.resolve(REPO).folder is None


@pytest.mark.parametrize(("held", "asked", "aliases"), CASES["repository_found_under"])
def test_a_repository_is_found_under_former_and_present_names(disk, held, asked, aliases):
    snapshot = disk.cached(held)
    source = disk.resolve(asked, aliases)
    assert (source.folder, source.repo) == (str(snapshot), asked)
    assert source.origin == ("Hub cache" if held == asked else f"Hub cache, under {held}")


def test_the_given_name_comes_before_the_others(disk):
    disk.cached("zai-org/chatglm3-6b", commit=OTHER)
    snapshot = disk.cached("THUDM/chatglm3-6b")
    assert disk.resolve("THUDM/chatglm3-6b", {"THUDM": "zai-org"}).folder == str(snapshot)


def test_a_folder_inside_the_cache_tells_its_repository_and_commit(disk):
    snapshot = disk.cached()
    source = disk.resolve(str(snapshot))
    assert (source.repo, source.revision, source.cached) == (REPO, COMMIT, True)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege on Windows")
def test_a_link_to_a_snapshot_tells_its_repository_too(disk):
    (disk.cwd / "qwen").symlink_to(disk.cached())
    source = disk.resolve("./qwen")
    assert (source.repo, source.folder) == (REPO, str(disk.cwd / "qwen"))


def test_a_plain_folder_does_not_say_its_repository_and_the_note_of_a_download_proves_no_commit(disk):
    folder = disk.folder()
    facts = disk.facts("./model")
    assert isinstance(facts["model.repo"], Unknown) and isinstance(facts["model.revision"], Unknown)
    note = folder / ".cache" / "huggingface" / "download" / "config.json.metadata"
    note.parent.mkdir(parents=True)
    changed = (folder / "config.json").stat().st_mtime
    note.write_text(f"{COMMIT}\netag\n{changed}\n")
    assert isinstance(disk.facts("./model")["model.revision"], Unknown)


@pytest.mark.parametrize(("variables", "place"), CASES["cache_one_client"])
@pytest.mark.skipif(os.name == "nt", reason="the paths are POSIX paths")
def test_the_cache_is_the_one_that_the_client_would_use(variables, place):
    assert cache_folder("/work", {"HOME": "/home/li", **variables}) == place.format(home="/home/li", cwd="/work")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_a_reference_holds_nobody_up(tmp_path):
    place = tmp_path / "models--a--b"
    (place / "snapshots" / COMMIT).mkdir(parents=True)
    (place / "refs").mkdir()
    os.mkfifo(place / "refs" / "main")
    (held,) = cached_repos(["a/b", "c/d"], str(tmp_path))
    assert (held.refs, [item.commit for item in held.commits]) == ({}, [COMMIT])


def test_a_path_inside_the_cache_tells_repository_and_commit():
    assert commit_of_path(f"/cache/models--a--b/snapshots/{COMMIT}") == ("a/b", COMMIT)
    assert commit_of_path("/cache/models--gpt2/snapshots/main/onnx") == ("gpt2", None)
    assert commit_of_path("/models/a") == (None, None)
