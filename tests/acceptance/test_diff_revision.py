"""Story 2: ChatGLM3-6b trains on 16 GB with the files of January 2024 and runs out of memory with later ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from header_true import header, model
from loopback import Hub, virtual

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "fixtures" / "code" / "checkpointing"
OLD, NEW = "b098244", "37fe000"
#: The shape of the model's template: a blank before the line end after each role goes away.
TEMPLATE = "{{% for m in messages %}}<|{{{{ m['role'] }}}}|>{blank}\n {{{{ m['content'] }}}}{{% endfor %}}"
TEMPLATE += "{{% if add_generation_prompt %}}<|assistant|>{{% endif %}}"


def weights(name: str) -> dict[str, Any]:
    """Every shard of a described model: a real header, no bytes behind it."""
    described = model(name)
    files = {}
    for shard, tensors in described.shards.items():
        prefix, data = header(tensors)
        files[shard] = virtual(prefix, len(prefix) + data)
    return files


def publish(hub: Hub, name: str = "zai-org/chatglm3-6b") -> Any:
    """The repository as it was in January 2024 and after its update of February 2024, in the same shape."""
    repo = hub.repo(name)
    config = model("chatglm3-6b").about["config"]
    repo.commit(
        {
            **weights("chatglm3-6b"),
            "config.json": json.dumps(config),
            "modeling_chatglm.py": (CODE / "old" / "modeling_tiny.py").read_text(),
            "tokenizer_config.json": json.dumps({"chat_template": TEMPLATE.format(blank=" ")}),
            "README.md": "# ChatGLM3",
        },
        title="safetensors",
        id=OLD,
    )
    repo.commit(
        {"modeling_chatglm.py": (CODE / "new" / "modeling_tiny.py").read_text()},
        title="support for newer transformers",
        id=NEW,
    )
    repo.commit({"tokenizer_config.json": json.dumps({"chat_template": TEMPLATE.format(blank="")})}, title="tokens")
    repo.commit({"README.md": "# ChatGLM3-6B"}, title="readme")
    return repo


def download(hub: Hub, name: str, revision: str, folder: Path) -> Path:
    """The files of a commit as somebody would copy them, but for the weights."""
    commit = hub.repos[name].find(revision)
    assert commit is not None
    for path, blob in commit.files.items():
        if not path.endswith(".safetensors"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(b"".join(blob.slice(0, blob.size)))
    return folder


@pytest.fixture
def diff(run: Callable[..., Any], hub: Hub, tmp_path: Path) -> Callable[..., Any]:
    """Run ``diff-revision`` against the loopback Hub."""

    def start(*arguments: str, **env: str) -> Any:
        environ = {**hub.environ(tmp_path), **env}
        return run("diff-revision", *arguments, "--no-config", "--no-environment", env=environ)

    return start


def by_id(report: dict[str, Any]) -> dict[str, Any]:
    return {finding["id"]: finding for finding in report["findings"]}


def test_the_cause_is_named_although_the_weights_are_identical(diff, hub):
    publish(hub)
    result = diff("zai-org/chatglm3-6b", OLD, "main", "--format", "json")
    assert result.code == 1, result.err
    found = by_id(result.json)["remote-code-checkpointing-does-nothing"]
    assert "gradient_checkpointing_enable" in found["message"] and "TinyPreTrainedModel" in found["message"]
    section = result.json["sections"]["revision"]
    assert section["verdict"].startswith("weights identical")
    assert section["pin"].startswith(OLD) and section["verdict"].endswith(f"pin {OLD}")


def test_the_verdict_is_the_first_line(diff, hub):
    publish(hub)
    result = diff("zai-org/chatglm3-6b", OLD)
    first = result.out.splitlines()[0]
    assert first.startswith("weights identical") and f"pin {OLD}" in first
    assert "error[remote-code-checkpointing-does-nothing]" in result.out


def test_the_changed_rendering_of_the_template_is_shown(diff, hub):
    publish(hub)
    result = diff("zai-org/chatglm3-6b", OLD, "main", "--format", "json")
    (change,) = [
        entry for entry in result.json["sections"]["revision"]["changes"] if entry["kind"] == "rendering-changed"
    ]
    assert change["before"] != change["after"]
    assert "chat-template-renders-differently" in by_id(result.json)


def test_unchanged_weights_cost_no_byte_of_any_weight_file(diff, hub):
    publish(hub)
    changed_texts = 3  # code, tokenizer_config.json, README.md
    diff("zai-org/chatglm3-6b", OLD, "main")
    assert hub.bytes_of(".safetensors") == 0
    assert len(hub.log) <= 2 + 2 * changed_texts


def test_a_moved_repository_is_followed_and_reported(diff, hub):
    publish(hub)
    hub.move("THUDM/chatglm3-6b", "zai-org/chatglm3-6b")
    result = diff("THUDM/chatglm3-6b", OLD, "main", "--format", "json")
    assert result.code == 1
    assert result.json["sections"]["revision"]["moved"]["now"] == "zai-org/chatglm3-6b"


def test_without_revisions_the_last_change_that_matters_is_compared(diff, hub):
    publish(hub)
    result = diff("zai-org/chatglm3-6b", "--format", "json")
    section = result.json["sections"]["revision"]
    assert [change["kind"] for change in section["changes"] if change["area"] == "template"] == ["rendering-changed"]


def test_history_names_the_commit_behind_the_finding(diff, hub):
    publish(hub)
    result = diff("zai-org/chatglm3-6b", OLD, "main", "--history", "--format", "json")
    found = by_id(result.json)["remote-code-checkpointing-does-nothing"]
    commits = {entry["fingerprint"]: entry["commit"] for entry in result.json["sections"]["revision"]["introduced"]}
    assert commits[found["fingerprint"]].startswith(NEW)
    assert "support for newer transformers" in commits[found["fingerprint"]]


def test_nothing_of_the_repository_runs_and_nothing_is_written(diff, hub, tmp_path):
    mark = tmp_path / "ran"
    repo = publish(hub)
    repo.commit({"modeling_chatglm.py": f"open({str(mark)!r}, 'w').write('x')\n"})
    diff("zai-org/chatglm3-6b", OLD, "main", "--no-cache")
    assert not mark.exists()
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").rglob("*"))


def test_what_could_not_be_read_is_not_called_unchanged(diff, hub):
    publish(hub)
    hub.fault("503", match=r"modeling_chatglm", times=99)
    result = diff("zai-org/chatglm3-6b", OLD, "main", "--timeout", "3", "--format", "json")
    assert result.code == 3
    assert "modeling_chatglm.py" in json.dumps(result.json["sections"]["revision"]["unread"])
    assert result.json["status"] == "incomplete"


def test_without_network_and_cache_it_says_what_to_do(run, tmp_path):
    result = run(
        "diff-revision", "THUDM/chatglm3-6b", "--no-config", env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    )
    assert result.code == 3
    assert len(result.err.splitlines()) == 1 and "two folders" in result.err


def test_equal_revisions_are_said_to_be_equal(diff, hub):
    publish(hub)
    result = diff("zai-org/chatglm3-6b", OLD, OLD)
    assert result.code == 0
    assert "weights identical" in result.out.splitlines()[0]


def test_two_folders_are_compared_without_any_hub(run, tmp_path):
    for side in ("old", "new"):
        folder = tmp_path / side
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "chatglm"}))
        (folder / "modeling_chatglm.py").write_text((CODE / side / "modeling_tiny.py").read_text())
    result = run("diff-revision", "./old", "./new", "--no-config", "--no-environment", "--format", "json")
    assert "remote-code-checkpointing-does-nothing" in by_id(result.json)


def test_pin_writes_the_oids_and_diff_revision_says_when_the_files_are_others(run, hub, tmp_path):
    repo = publish(hub)
    environ = hub.environ(tmp_path)
    pinned = run("pin", "zai-org/chatglm3-6b", OLD, env=environ)
    assert pinned.code == 0, pinned.err
    pins = json.loads((tmp_path / "envdoctor-pins.json").read_text())
    entry = pins["models"]["zai-org/chatglm3-6b"]
    assert entry["revision"].startswith(OLD) and len(entry["headers"]) == 7
    assert repo is not None
    moved = run(
        "diff-revision",
        "zai-org/chatglm3-6b",
        "--pin",
        "--no-config",
        "--no-environment",
        "--format",
        "json",
        env=environ,
    )
    assert moved.code == 1
    assert "model-differs-from-pin" in by_id(moved.json)


def retyped(name: str, dtype: str) -> dict[str, Any]:
    """The shards of a model with every tensor in another dtype."""
    files = {}
    for shard, tensors in model(name).shards.items():
        prefix, data = header({tensor: (dtype, shape) for tensor, (_, shape) in tensors.items()})
        files[shard] = virtual(prefix, len(prefix) + data)
    return files


def test_weights_in_float32_under_an_equal_config_are_named(diff, hub):
    repo = hub.repo("org/retyped")
    repo.commit({**retyped("qwen2.5-7b-instruct", "F16"), "config.json": "{}"}, id="aaaaaaa")
    repo.commit(retyped("qwen2.5-7b-instruct", "F32"))
    result = diff("org/retyped", "aaaaaaa", "main", "--format", "json")
    assert "weights-dtype-changed-to-float32" in by_id(result.json)
    amounts = result.json["sections"]["revision"]["amounts"]
    assert amounts["new"]["dtype"]["F32"][2] == 2 * amounts["old"]["dtype"]["F16"][2]
    text = diff("org/retyped", "aaaaaaa", "main").out
    assert "F16 7.62 G (15.2 GB) -> F32 7.62 G (30.5 GB)" in text


def test_a_pickle_in_the_place_of_safetensors_is_named(diff, hub):
    repo = hub.repo("org/pickled")
    repo.commit({**weights("chatglm3-6b"), "config.json": "{}"}, id="aaaaaaa")
    repo.commit({"pytorch_model.bin": b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R."})
    found = by_id(diff("org/pickled", "aaaaaaa", "main", "--format", "json").json)
    assert "pickle-file-added" in found or "pickle-runs-code" in found


def test_tensors_lists_every_pattern(diff, hub):
    repo = hub.repo("org/listed")
    repo.commit({**retyped("qwen2.5-7b-instruct", "F16"), "config.json": "{}"}, id="aaaaaaa")
    repo.commit(retyped("qwen2.5-7b-instruct", "F32"))
    result = diff("org/listed", "aaaaaaa", "main", "--tensors", "--format", "json")
    assert any("{i}" in entry["symbol"] for entry in result.json["sections"]["revision"]["tensors"])
    assert diff("org/listed", "aaaaaaa", "main", "--stat").code == 1


def test_a_listed_file_that_cannot_be_trusted_is_named_and_gives_exit_3(diff, hub, tmp_path):
    repo = publish(hub)
    repo.extra_siblings = [{"rfilename": "../../.ssh/id_rsa", "blobId": "a" * 40, "size": 10}]
    result = diff("zai-org/chatglm3-6b", OLD, "main", "--format", "json")
    assert result.code == 3
    assert "id_rsa" in json.dumps(result.json["sections"]["revision"]["unread"])
    assert not list(tmp_path.rglob("id_rsa*"))


def test_check_compares_a_folder_with_its_pin(run, hub, tmp_path):
    publish(hub)
    assert run("pin", "zai-org/chatglm3-6b", OLD, env=hub.environ(tmp_path)).code == 0
    folder = download(hub, "zai-org/chatglm3-6b", OLD, tmp_path / "chatglm3-6b")
    (folder / "trainer_state.json").write_text("{}")
    same = run("check", "--no-config", "--model", str(folder), "--format", "json")
    assert "model-differs-from-pin" not in by_id(same.json)
    (folder / "modeling_chatglm.py").write_text((CODE / "new" / "modeling_tiny.py").read_text())
    other = run("check", "--no-config", "--model", str(folder), "--format", "json")
    assert other.code == 1
    assert "modeling_chatglm.py" in by_id(other.json)["model-differs-from-pin"]["message"]
    (folder / "modeling_chatglm.py").unlink()
    (folder / "modeling_chatglm.py").symlink_to(tmp_path / "elsewhere.py")
    (tmp_path / "elsewhere.py").write_text((CODE / "new" / "modeling_tiny.py").read_text())
    hidden = run("check", "--no-config", "--model", str(folder))
    assert hidden.code == 3
    assert hidden.out.startswith("Not judged:") and "modeling_chatglm.py could not be compared" in hidden.out


def test_a_folder_of_forged_notes_is_compared_by_its_content(run, tmp_path):
    for side, code in (("a", "x = 1\n"), ("b", "import os\nos.system('true')\n")):
        (tmp_path / side / ".cache" / "huggingface" / "download").mkdir(parents=True)
        (tmp_path / side / "config.json").write_text("{}")
        (tmp_path / side / "modeling_a.py").write_text(code)
        changed = (tmp_path / side / "modeling_a.py").stat().st_mtime
        note = tmp_path / side / ".cache" / "huggingface" / "download" / "modeling_a.py.metadata"
        note.write_text(f"{'a' * 40}\n{'b' * 40}\n{changed}\n")
    result = run("diff-revision", "./a", "./b", "--no-config", "--no-environment", "--format", "json")
    assert "exec-call-added" in {change["kind"] for change in result.json["sections"]["revision"]["changes"]}


def test_large_weights_of_equal_headers_are_not_called_equal_before_they_were_read(run, tmp_path):
    prefix, data = header({"w": ("F16", [40_000_000])})
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "config.json").write_text("{}")
        with open(tmp_path / side / "model.safetensors", "wb") as file:
            file.write(prefix)
            file.truncate(len(prefix) + data)
    with open(tmp_path / "b" / "model.safetensors", "r+b") as file:
        file.seek(len(prefix) + data - 1)
        file.write(b"x")
    arguments = ("diff-revision", "./a", "./b", "--no-config", "--no-environment", "--format", "json")
    quick, whole = run(*arguments), run(*arguments, "--hash")
    assert quick.code == 3 and quick.json["sections"]["revision"]["weights"] == "unknown"
    assert whole.code == 0 and whole.json["sections"]["revision"]["weights"] == "changed"


def test_pins_without_this_model_are_said_and_are_no_pass(run, hub, tmp_path):
    publish(hub)
    assert run("pin", "zai-org/chatglm3-6b", OLD, env=hub.environ(tmp_path)).code == 0
    result = run("check", "--no-config", "--model", "Qwen/Qwen2.5-7B-Instruct", "--require", "pin.state")
    assert result.code == 3
    assert "pins other models" in result.out


def test_a_model_that_gains_weights_is_not_called_equal(run, tmp_path):
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "config.json").write_text("{}")
    (tmp_path / "new" / "pytorch_model.bin").write_bytes(b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.")
    result = run("diff-revision", "./old", "./new", "--no-config", "--no-environment")
    assert result.out.startswith("weights added")
