"""Story 2: ChatGLM3-6b trains on 16 GB with the files of January 2024 and runs out of memory with later ones."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from header_true import header, model
from loopback import Hub, virtual

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "fixtures" / "code" / "checkpointing"
OLD, NEW = "b098244", "37fe000"
PICKLE = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R."
README = "---\nlanguage:\n- zh\n- en\ntags:\n- glm\n- chatglm\n---\n# ChatGLM3"
#: The shape of the model's template: a blank before the line end after each role goes away.
TEMPLATE = "{{% for m in messages %}}<|{{{{ m['role'] }}}}|>{blank}\n {{{{ m['content'] }}}}{{% endfor %}}"
TEMPLATE += "{{% if add_generation_prompt %}}<|assistant|>{{% endif %}}"


def weights(name: str, dtype: str = "") -> dict[str, Any]:
    """Every shard of a described model: a real header, no bytes behind it; with every tensor in ``dtype``, if given."""
    files = {}
    for shard, tensors in model(name).shards.items():
        told = {tensor: (dtype, shape) for tensor, (_, shape) in tensors.items()} if dtype else tensors
        prefix, data = header(told)
        files[shard] = virtual(prefix, len(prefix) + data)
    return files


def publish(hub: Hub) -> None:
    """The repository as it was in January 2024 and after its update of February 2024, in the same shape."""
    repo = hub.repo("zai-org/chatglm3-6b")
    config = {**model("chatglm3-6b").about["config"], "auto_map": {"AutoModel": "modeling_chatglm.TinyModel"}}
    repo.commit(
        {
            **weights("chatglm3-6b"),
            "config.json": json.dumps(config),
            "modeling_chatglm.py": (CODE / "old" / "modeling_tiny.py").read_text(),
            "tokenizer_config.json": json.dumps({"chat_template": TEMPLATE.format(blank=" ")}),
            "README.md": README,
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
    repo.commit({"README.md": f"{README}-6B"}, title="readme")


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

    def start(*arguments: str) -> Any:
        words = (*arguments, "--no-config", "--no-environment")
        return run("diff-revision", *words, env=hub.environ(tmp_path))

    return start


@pytest.fixture
def published(hub: Hub, diff: Callable[..., Any]) -> Callable[..., Any]:
    """Publish the repository: ``diff-revision`` of it, from its first commit to the newest, as JSON."""
    publish(hub)
    return lambda *more: diff("zai-org/chatglm3-6b", OLD, "main", "--format", "json", *more)


def section(result: Any) -> Any:
    return result.json["sections"]["revision"]


@pytest.fixture
def sides(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Two folders, with a config.json and these files each."""

    def make(**files: tuple[str, str]) -> tuple[Path, Path]:
        for number, side in enumerate(("old", "new")):
            (tmp_path / side).mkdir()
            loaded = {f"AutoModelFor{number}": f"{name}.TinyModel" for number, name in enumerate(files)}
            (tmp_path / side / "config.json").write_text(json.dumps({"model_type": "chatglm", "auto_map": loaded}))
            for name, texts in files.items():
                (tmp_path / side / f"{name}.py").write_text(texts[number])
        return tmp_path / "old", tmp_path / "new"

    return make


def test_the_cause_is_named_although_the_weights_are_identical(published, diff, hub):
    result = published()
    assert result.code == 1, result.err
    found = result.found["remote-code-checkpointing-does-nothing"]
    assert "gradient_checkpointing_enable" in found["message"] and "TinyPreTrainedModel" in found["message"]
    line = section(result)["verdict"]
    assert (
        line.startswith("error: gradient checkpointing stays off, whatever is asked: Tiny")
        and "weights identical" in line
    )
    assert section(result)["pin"].startswith(OLD) and f"; pin {OLD} ({OLD} -> " in line
    (change,) = [entry for entry in section(result)["changes"] if entry["kind"] == "rendering-changed"]
    assert change["before"] != change["after"] and "chat-template-renders-differently" in result.found
    # two lists, code and tokenizer_config.json; without a card in the lists README.md too
    assert hub.bytes_of(".safetensors") == 0 and len(hub.log) == 2 + 2 * 2
    hub.forget()
    hub.cards = False
    assert published().code == 1 and len(hub.log) == 2 + 2 * 3
    told = diff("zai-org/chatglm3-6b", OLD).out
    first = told.splitlines()[0]
    assert first.startswith("error: ") and f"pin {OLD} ({OLD} -> " in first
    assert "error[remote-code-checkpointing-does-nothing]" in told


def test_a_moved_repository_is_followed_and_reported(published, diff, hub):
    hub.move("THUDM/chatglm3-6b", "zai-org/chatglm3-6b")
    result = diff("THUDM/chatglm3-6b", OLD, "main", "--format", "json")
    assert result.code == 1 and section(result)["moved"]["now"] == "zai-org/chatglm3-6b"


def test_without_revisions_the_last_change_that_matters_is_compared(published, diff, hub):
    hub.move("THUDM/chatglm3-6b", "zai-org/chatglm3-6b")
    changes = section(diff("THUDM/chatglm3-6b", "--format", "json"))["changes"]
    assert [change["kind"] for change in changes if change["area"] == "template"] == ["rendering-changed"]
    assert len(hub.log) == 1 + 4 + 2, "a redirect, three lists, the history, and one file of both"


def test_history_names_the_commit_behind_the_finding(published):
    result = published("--history")
    found = result.found["remote-code-checkpointing-does-nothing"]
    commits = {entry["fingerprint"]: entry["commit"] for entry in section(result)["introduced"]}
    assert commits[found["fingerprint"]].startswith(NEW)
    assert "support for newer transformers" in commits[found["fingerprint"]]


def test_what_the_newer_revision_mends_is_told_with_the_commit_that_brought_it(diff, hub):
    repo = hub.repo("org/mended")
    code = {side: (CODE / side / "modeling_tiny.py").read_text() for side in ("old", "new")}
    config = json.dumps({"auto_map": {"AutoModel": "modeling_tiny.TinyModel"}})
    repo.commit({"config.json": config, "modeling_tiny.py": code["new"]}, id="aaaaaaa")
    repo.commit({"modeling_tiny.py": code["old"]}, title="switch it on again", id="bbbbbbb")
    words = ("org/mended", "aaaaaaa", "main")
    (mended,) = section(diff(*words, "--history", "--format", "json"))["mended"]
    assert mended["rule"] == "remote-code-checkpointing-does-nothing"
    assert mended["commit"].startswith("bbbbbbb") and "switch it on again" in mended["commit"]
    before = len(hub.log)
    told = diff(*words)
    assert (
        "Mended       going back to OLD would be an error: gradient checkpointing stays" in told.out and not told.code
    )
    asked = [entry.path for entry in hub.log[before:]]
    assert asked and len(asked) == len(set(asked)), "going back asks the Hub for nothing"


def test_nothing_of_the_repository_runs_and_nothing_is_written(published, hub, tmp_path):
    mark = tmp_path / "ran"
    hub.repos["zai-org/chatglm3-6b"].commit({"modeling_chatglm.py": f"open({str(mark)!r}, 'w').write('x')\n"})
    published("--no-cache")
    assert not mark.exists()
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").rglob("*"))


def test_what_could_not_be_read_is_not_called_unchanged(published, hub):
    hub.fault("503", match=r"modeling_chatglm", times=99)
    result = published("--timeout", "3")
    assert result.code == 3 and result.json["status"] == "incomplete"
    assert "modeling_chatglm.py" in json.dumps(section(result)["unread"])


def test_of_a_gated_repository_the_first_line_says_why_and_says_it_once(published, diff, hub):
    hub.repos["zai-org/chatglm3-6b"].gated = True
    result = diff("zai-org/chatglm3-6b", OLD, "main")
    assert result.code == 3
    first, *others = result.out.splitlines()
    assert first.startswith("not read: ") and "gated" in first and "accept its conditions" in first
    assert len([line for line in others if "accept its conditions" in line]) == 1, result.out


def test_a_listed_file_that_cannot_be_trusted_is_named_and_gives_exit_3(published, hub, tmp_path):
    hub.repos["zai-org/chatglm3-6b"].extra_siblings = [
        {"rfilename": "../../.ssh/id_rsa", "blobId": "a" * 40, "size": 10}
    ]
    result = published()
    assert result.code == 3 and "id_rsa" in json.dumps(section(result)["unread"])
    assert not list(tmp_path.rglob("id_rsa*"))


def test_without_network_and_cache_it_says_what_to_do(run, tmp_path):
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    result = run("diff-revision", "THUDM/chatglm3-6b", "--no-config", env=offline)
    assert result.code == 3
    assert len(result.err.splitlines()) == 1 and "local folders" in result.err


def test_equal_revisions_are_said_to_be_equal(published, diff):
    result = diff("zai-org/chatglm3-6b", OLD, OLD)
    assert result.code == 0
    assert result.out.startswith("nothing changed; weights identical")


@pytest.mark.parametrize(
    ("texts", "said"), [(("a", "a"), "nothing changed; "), (("a", "b"), "nothing that matters changed; ")]
)
def test_a_readme_that_changed_is_no_reason_to_say_that_nothing_did(run, tmp_path, texts, said):
    for name, text in zip(("old", "new"), texts, strict=True):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "qwen2"}')
        (tmp_path / name / "README.md").write_text(text)
    result = run("diff-revision", "--no-config", tmp_path / "old", tmp_path / "new")
    assert result.code == 0 and result.out.startswith(said)


def test_pin_writes_the_oids_and_diff_revision_says_when_the_files_are_others(run, published, diff, hub, tmp_path):
    pinned = run("pin", "zai-org/chatglm3-6b", OLD, env=hub.environ(tmp_path))
    assert pinned.code == 0, pinned.err
    entry = json.loads((tmp_path / "envdoctor-pins.json").read_text())["models"]["zai-org/chatglm3-6b"]
    assert entry["revision"].startswith(OLD) and len(entry["files"]) == 11
    moved = diff("zai-org/chatglm3-6b", "--pin", "--format", "json")
    assert moved.code == 1 and "model-differs-from-pin" in moved.found
    other = run("check", "--no-config", "--model", "Qwen/Qwen2.5-7B-Instruct", "--require", "pin.state")
    assert other.code == 3 and "pins other models" in other.out


def test_check_compares_a_folder_with_its_pin(run, published, hub, tmp_path):
    assert run("pin", "zai-org/chatglm3-6b", OLD, env=hub.environ(tmp_path)).code == 0
    folder = download(hub, "zai-org/chatglm3-6b", OLD, tmp_path / "chatglm3-6b")
    (folder / "trainer_state.json").write_text("{}")
    words = ("check", "--no-config", "--model", str(folder))
    assert "model-differs-from-pin" not in run(*words, "--format", "json").found
    (folder / "modeling_chatglm.py").write_text((CODE / "new" / "modeling_tiny.py").read_text())
    other = run(*words, "--format", "json")
    assert other.code == 1
    assert "modeling_chatglm.py" in other.found["model-differs-from-pin"]["message"]
    (tmp_path / "node.json").write_text('{"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "2.6.0"}}')
    (tmp_path / "pip-list.txt").write_text("torch 2.6.0\ntransformers 4.51.3\n")
    for source in (("--facts", "node.json"), ("--report", "pip-list.txt")):
        assert "model-differs-from-pin" in run(*words, *source, "--format", "json").found
    (folder / "modeling_chatglm.py").rename(tmp_path / "elsewhere.py")
    (folder / "modeling_chatglm.py").symlink_to(tmp_path / "elsewhere.py")
    hidden = run(*words)
    assert hidden.code == 3
    assert hidden.out.startswith("Not judged:") and "modeling_chatglm.py could not be compared" in hidden.out


def test_the_commits_to_choose_from_are_listed_by_what_they_changed(published, diff, hub, tmp_path):
    result = diff("zai-org/chatglm3-6b", "--list")
    assert result.code == 0, result.err
    lines = [line.split(maxsplit=2) for line in result.out.splitlines()[1:5]]
    assert [(line[0][:7], line[1]) for line in lines][1:3] == [(lines[1][0], "2024-01-03"), (NEW, "2024-01-02")]
    told = [" ".join(line[2].split()) for line in lines]
    assert told[:3] == ["docs only readme", "tokenizer tokens", "code support for newer transformers"]
    found = diff("zai-org/chatglm3-6b", OLD, "main", "--list", "--format", "json").json
    assert [list(commit["files"]) for commit in found["commits"]] == [["docs"], ["tokenizer"], ["code"]]
    hub.fault("403", match=NEW, times=99)
    failed = diff("zai-org/chatglm3-6b", "--list")
    assert failed.code == 3 and "not known: 127.0.0.1 answered HTTP 403" in failed.out
    refused = diff("zai-org/chatglm3-6b", "--list", "--format", "sarif")
    assert refused.code == 2 and "terminal or json" in refused.err


def test_offline_the_list_is_what_the_cache_holds(diff, hub, tmp_path):
    publish(hub)
    place = Path(hub.environ(tmp_path)["HF_HOME"]) / "hub" / "models--zai-org--chatglm3-6b"
    commit = hub.repos["zai-org/chatglm3-6b"].find(OLD)
    folder = place / "snapshots" / commit.id
    folder.mkdir(parents=True)
    download(hub, "zai-org/chatglm3-6b", OLD, folder)
    listed = diff("ZAI-ORG/chatglm3-6b", "--list", "--offline").out
    assert f"{OLD}  " in listed and "no weights of it are in the local cache" in listed
    assert f"{OLD}* " in diff("zai-org/chatglm3-6b", "--list").out
    main = place / "snapshots" / ("f" * 40)
    main.mkdir()
    download(hub, "zai-org/chatglm3-6b", "main", main)
    compared = diff("zai-org/chatglm3-6b", OLD, "fffffff", "--offline", "--format", "json")
    assert compared.code == 3 and section(compared)["weights"] == "unknown"
    assert "no weights of it are in the local cache" in json.dumps(section(compared)["unread"])
    assert "remote-code-checkpointing-does-nothing" in compared.found


def test_weights_in_float32_under_an_equal_config_are_named(diff, hub):
    repo = hub.repo("org/retyped")
    repo.commit({**weights("qwen2.5-7b-instruct", "F16"), "config.json": "{}"}, id="aaaaaaa")
    repo.commit(weights("qwen2.5-7b-instruct", "F32"))
    words = ("org/retyped", "aaaaaaa", "main")
    result = diff(*words, "--format", "json", "--tensors")
    assert "weights-dtype-changed-to-float32" in result.found
    assert any("{i}" in entry["symbol"] for entry in section(result)["tensors"])
    amounts = section(result)["amounts"]
    assert amounts["new"]["dtype"]["F32"][2] == 2 * amounts["old"]["dtype"]["F16"][2]
    assert "F16 7.62 G (15.2 GB) -> F32 7.62 G (30.5 GB)" in diff(*words).out
    assert diff(*words, "--stat").code == 1


def test_a_pickle_in_the_place_of_safetensors_is_named(diff, hub):
    repo = hub.repo("org/pickled")
    repo.commit({**weights("chatglm3-6b"), "config.json": "{}"}, id="aaaaaaa")
    repo.commit({"pytorch_model.bin": PICKLE})
    found = diff("org/pickled", "aaaaaaa", "main", "--format", "json").found
    assert "pickle-file-added" in found or "pickle-runs-code" in found


def test_two_folders_are_compared_without_any_hub(diff, sides):
    sides(modeling_chatglm=[(CODE / side / "modeling_tiny.py").read_text() for side in ("old", "new")])
    assert "remote-code-checkpointing-does-nothing" in diff("./old", "./new", "--format", "json").found


def test_a_folder_of_forged_notes_is_compared_by_its_content(diff, sides):
    for side in sides(modeling_a=("x = 1\n", "import os\nos.system('true')\n")):
        changed = (side / "modeling_a.py").stat().st_mtime
        notes = side / ".cache" / "huggingface" / "download"
        notes.mkdir(parents=True)
        (notes / "modeling_a.py.metadata").write_text(f"{'a' * 40}\n{'b' * 40}\n{changed}\n")
    result = diff("./old", "./new", "--format", "json")
    assert "exec-call-added" in {change["kind"] for change in section(result)["changes"]}


def test_large_weights_of_equal_headers_are_not_called_equal_before_they_were_read(diff, sides):
    prefix, data = header({"w": ("F16", [40_000_000])})
    for side, last in zip(sides(), b"\0x", strict=True):
        with open(side / "model.safetensors", "wb") as file:
            file.write(prefix)
            file.truncate(len(prefix) + data)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last]))
    for more, code, weights in (((), 3, "unknown"), (("--hash",), 0, "changed")):
        result = diff("./old", "./new", "--format", "json", *more)
        assert (result.code, section(result)["weights"]) == (code, weights)


def test_a_model_that_gains_weights_is_not_called_equal(diff, sides):
    _, new = sides()
    (new / "pytorch_model.bin").write_bytes(PICKLE)
    assert "; weights added (old -> new)\n" in diff("./old", "./new").out
