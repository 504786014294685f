"""A base run of calls of the huggingface_hub that is importable, against the Hub of HF_ENDPOINT; prints what came back.

Run in a process of its own: the client reads its variables when it is imported.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import huggingface_hub
from huggingface_hub import HfApi, hf_hub_download, scan_cache_dir, snapshot_download, try_to_load_from_cache
from huggingface_hub.utils import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

REPO = "zai-org/tiny"


def main() -> None:
    """Make each call and print ``{call: answer}`` as JSON."""
    api = HfApi()
    info = api.model_info(REPO, files_metadata=True)
    assert info.siblings is not None
    results: dict[str, Any] = {
        "version": huggingface_hub.__version__,
        "sha": info.sha,
        "sizes": {s.rfilename: s.size for s in info.siblings},
        "lfs": sorted(s.rfilename for s in info.siblings if s.lfs),
        "moved": api.model_info("THUDM/tiny").id,
        "prefix": api.model_info(REPO, revision=(info.sha or "")[:9]).sha,
        "pull request": api.model_info(REPO, revision="refs/pr/1").sha,
        "tree": sorted(e.path for e in api.list_repo_tree(REPO, recursive=True)),
        "commits": [c.title for c in api.list_repo_commits(REPO)],
        "files": sorted(api.list_repo_files(REPO)),
        "exists": [api.file_exists(REPO, "config.json"), api.file_exists(REPO, "nothing")],
        "revision exists": [api.revision_exists(REPO, "main"), api.revision_exists(REPO, "nothing")],
        "header": sorted(api.parse_safetensors_file_metadata(REPO, "model.safetensors").tensors),
        "metadata": api.get_safetensors_metadata(REPO).parameter_count,
    }
    results["config"] = _content(hf_hub_download(REPO, "config.json"))
    results["weights"] = len(_content(hf_hub_download(REPO, "model.safetensors")))
    results["snapshot"] = sorted(os.listdir(snapshot_download(REPO, allow_patterns=["sub/*"])))
    results["cached"] = [len(r.revisions) for r in scan_cache_dir().repos]
    results["from cache"] = bool(try_to_load_from_cache(REPO, "config.json"))
    calls: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
        "no repository": (lambda: api.model_info("zai-org/nothing"), RepositoryNotFoundError),
        "no revision": (lambda: api.model_info(REPO, revision="nothing"), RevisionNotFoundError),
        "no file": (lambda: hf_hub_download(REPO, "nothing"), EntryNotFoundError),
        "gated": (lambda: hf_hub_download("zai-org/gated", "config.json", token=False), GatedRepoError),
        "gated with a token": (lambda: hf_hub_download("zai-org/gated", "config.json", token="hf_x"), GatedRepoError),
        "disabled": (lambda: api.model_info("zai-org/disabled"), Exception),
    }
    for name, (call, error) in calls.items():
        try:
            call()
            results[name] = "no error"
        except error as caught:
            results[name] = type(caught).__name__
    json.dump(results, sys.stdout)


def _content(path: str) -> str:
    with open(path, encoding="latin-1") as stream:
        return stream.read()


if __name__ == "__main__":
    main()
