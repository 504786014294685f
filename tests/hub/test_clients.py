"""The loopback Hub is one that the real clients accept."""

import json
import os
import struct
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from loopback import Hub, virtual

CALLS = Path(__file__).with_name("client_calls.py")
CLIENTS = ("0.23.5", "0.36.2", "1.33.0", "2.4.0")


def fill(hub: Hub) -> None:
    tensor = {"dtype": "F16", "shape": [4, 2], "data_offsets": [0, 16]}
    body = json.dumps({"lm_head.weight": tensor}).encode()
    weights = virtual(struct.pack("<Q", len(body)) + body + bytes(16))
    repo = hub.repo("zai-org/tiny")
    repo.commit({"config.json": "{}", "README.md": "hello", "model.safetensors": weights}, title="first")
    repo.commit({"sub/notes.txt": "notes", "config.json": '{"a": 1}'}, title="second")
    repo.pull_request(1, {"more.txt": "more"})
    hub.move("THUDM/tiny", "zai-org/tiny")
    hub.repo("zai-org/gated", gated=True).commit({"config.json": "{}"})
    hub.repo("zai-org/disabled", disabled=True).commit({"config.json": "{}"})


def base_run(hub: Hub, home: Path, packages: Path | None) -> dict[str, object]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environ |= hub.environ(home)
    if packages is not None:
        environ["PYTHONPATH"] = str(packages)
    command = [sys.executable, str(CALLS)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(results: dict[str, object], hub: Hub) -> None:
    commit = hub.repos["zai-org/tiny"].find("main")
    assert commit is not None
    assert results["sha"] == results["prefix"] == commit.id
    assert results["pull request"] == hub.repos["zai-org/tiny"].pull_requests[1]
    assert results["sizes"] == {path: blob.size for path, blob in commit.files.items()}
    assert results["lfs"] == ["model.safetensors"]
    assert results["moved"] == "zai-org/tiny"
    assert results["files"] == ["README.md", "config.json", "model.safetensors", "sub/notes.txt"]
    assert results["tree"] == sorted([*commit.files, "sub"])
    assert results["commits"] == ["second", "first"]
    assert results["exists"] == results["revision exists"] == [True, False]
    assert results["header"] == ["lm_head.weight"]
    assert results["metadata"] == {"F16": 8}
    assert results["config"] == '{"a": 1}'
    assert results["weights"] == commit.files["model.safetensors"].size
    assert results["cached"] == [1]
    assert results["from cache"] is True
    assert results["no repository"] == "RepositoryNotFoundError"
    assert results["no revision"] == "RevisionNotFoundError"
    assert "EntryNotFoundError" in str(results["no file"])
    assert results["gated"] == results["gated with a token"] == "GatedRepoError"
    assert results["disabled"] in ("DisabledRepoError", "HfHubHTTPError")
    assert not [entry for entry in hub.log if entry.server == "cdn" and entry.authorized]


def test_the_installed_client_accepts_the_hub(hub, tmp_path):
    fill(hub)
    check(base_run(hub, tmp_path, None), hub)


@pytest.mark.slow
@pytest.mark.parametrize("version", CLIENTS)
def test_every_supported_client_accepts_the_hub(hub, tmp_path, packages_of, version):
    fill(hub)
    results = base_run(hub, tmp_path, packages_of(version))
    assert results["version"] == version
    check(results, hub)


@pytest.mark.slow
@pytest.mark.parametrize("version", [version for version in CLIENTS if version != metadata.version("huggingface_hub")])
def test_every_fault_is_survived_with_every_supported_client(packages_of, version):
    """The tests of this folder that run in this process, once more in another, with another client."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environ["PYTHONPATH"] = str(packages_of(version))
    names = ("test_faults.py", "test_online.py", "test_revisions.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", *(str(CALLS.with_name(name)) for name in names)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
