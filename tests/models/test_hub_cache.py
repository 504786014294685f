"""Where the Hub cache is, and what its references and folders say."""

from __future__ import annotations

import os

import pytest

from envdoctor.observe import CachedCommit, cache_folder, cached_repos, commit_of_path, matching

COMMIT, OTHER = "b098244a71fbe69ce149682d9072a7629f7e908c", "b098200000000000000000000000000000000000"


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, "{home}/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/huggingface/hub"),
        ({"HF_HOME": "/hf", "XDG_CACHE_HOME": "/xdg"}, "/hf/hub"),
        ({"HF_HUB_CACHE": "/cache", "HF_HOME": "/hf"}, "/cache"),
        ({"HUGGINGFACE_HUB_CACHE": "/old", "HF_HOME": "/hf"}, "/old"),
        ({"HF_HOME": "~/hf"}, "{home}/hf/hub"),
        ({"HF_HOME": ""}, "{home}/.cache/huggingface/hub"),
        ({"HF_HUB_CACHE": "here"}, "{cwd}/here"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="the paths are POSIX paths")
def test_the_cache_is_the_one_that_the_client_would_use(variables, place):
    assert cache_folder("/work", {"HOME": "/home/li", **variables}) == place.format(home="/home/li", cwd="/work")


def test_a_commit_is_found_by_its_references_and_its_beginning():
    commits = [CachedCommit("a/b", COMMIT, "", ("main", "refs/pr/1")), CachedCommit("a/b", OTHER, "")]
    for revision in ("main", "refs/pr/1", COMMIT, COMMIT[:7]):
        assert [found.commit for found in matching(commits, revision)] == [COMMIT]
    assert len(matching(commits, "b0982")) == 2
    assert matching(commits, "b09") == matching(commits, "v1") == []


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
