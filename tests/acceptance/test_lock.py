"""``check --lock``: what would be installed is judged before anything is, for a machine that is stated."""

import json
import sys

import pytest
from locking import LOCKS

LIST = """--extra-index-url https://download.pytorch.org/whl/cu121
torch==2.4.1
transformers==4.48.0
tokenizers==0.19.1
trl==0.9.6
numpy==2.1.0
"""
LOCK = ("--lock", "requirements.txt")
LINUX = ("--target-python", "3.11", "--target-platform", "linux-x86_64")


@pytest.fixture(autouse=True)
def listed(tmp_path):
    """The list, in the folder in which envdoctor is run."""
    (tmp_path / "requirements.txt").write_text(LIST)
    return tmp_path / "requirements.txt"


def test_findings_point_at_the_lines_of_the_list(run):
    result = run("check", *LOCK, *LINUX, "--format", "json")
    found = {f["id"]: [(place["path"], place["line"]) for place in f["locations"]] for f in result.json["findings"]}
    target = {"kind": "lock", "path": "requirements.txt", "because": "--lock"}
    assert result.code == 1 and result.json["target"] == target
    assert found["tokenizers-outside-transformers-window"] == [("requirements.txt", 3), ("requirements.txt", 4)]
    conflicts = [f for f in result.json["findings"] if f["id"] == "requirement-conflict"]
    assert [("requirements.txt", 6)] in [[(p["path"], p["line"]) for p in f["locations"]] for f in conflicts]


def test_a_whole_lock_is_judged_for_the_stated_machine(run):
    lock = LOCKS / "open-instruct.uv.lock"
    machine = ("--target-platform", "linux-x86_64", "--target-gpu", "A100", "--target-driver", "535")
    result = run("check", "--lock", f"{lock}[cuda13]", *machine)
    assert result.code == 1 and "torch 2.10.0+cu130" in result.out and "1 x A100 (sm_80)   driver 535" in result.out
    line = lock.read_text().splitlines().index('version = "2.10.0+cu130"') + 1
    assert "error[driver-too-old-for-cuda-13]\n" in result.out and f"  --> {lock}:{line}\n" in result.out
    assert run("check", "--lock", f"{lock}[cuda12]", *machine).code == 0


def test_a_release_that_a_line_of_unknown_requirements_may_move_is_no_error(run, listed):
    machine = ("--target-gpu", "A100", "--target-driver", "550", *LINUX)
    address = " @ git+https://github.com/owner/name"
    others = {
        "ujson": "error",
        f"private{address}": "error",
        "fast-plaid==1.3.0.290": "warning",
        f"fast-plaid{address}": "warning",
    }
    for line, severity in others.items():
        listed.write_text(f"sentence-transformers==5.3.0\ntorch\n{line}\n")
        result = run("check", *LOCK, *machine)
        assert f"{severity}[driver-too-old-for-cuda-13]" in result.out and (severity == "error") == bool(result.code)
        assert ("  fix " in result.out) == ("may ask for an older release" not in result.out) == (severity == "error")


@pytest.mark.parametrize("gpus", ["4090x2", "2x4090", "2 x RTX 4090", "RTX4090 *2"])
def test_a_number_of_gpus_is_no_part_of_their_name(run, listed, facts_file, gpus):
    listed.write_text("torch==2.4.1\n")
    assert "  2 x RTX 4090 (sm_89)" in run("check", *LOCK, "--target-gpu", gpus).out
    asked = ("memory", "--facts", facts_file({}), "--model", "Qwen/Qwen2.5-7B-Instruct", "--method", "lora")
    answer = run(*asked, "--gpu", gpus)
    assert "  2 x RTX 4090 (sm_89)" in answer.out


def test_facts_of_a_lock_are_judged_elsewhere(run, tmp_path):
    facts = run("facts", *LOCK, *LINUX, "--format", "json").out
    (tmp_path / "facts.json").write_text(facts, encoding="utf-8")
    found = run("check", "--facts", "facts.json", "--format", "json").found
    assert "tokenizers-outside-transformers-window" in found


@pytest.mark.parametrize(("text", "code"), [("", 3), ("# nothing\n", 3), ("!!!\n", 2)])
def test_an_empty_list_is_no_wrong_use_and_no_list_is(run, listed, text, code):
    listed.write_text(text)
    result = run("check", *LOCK)
    assert (result.code, result.out) == (code, "") and "--lock requirements.txt: names no package" in result.err


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("requirements.txt", "torch\ntransformers>=4.40\n", "no version of a package is known from requirements.txt\n"),
        ("requirements.txt", "torch==2.6.0\n-r more.txt\n", "requirements.txt:2: more.txt cannot be read: "),
        (
            "Dockerfile",
            "FROM python:3.11\nRUN pip install peft==0.12.0 -r more.txt\n",
            "Dockerfile:2: more.txt cannot be read: ",
        ),
    ],
)
def test_what_a_list_does_not_tell_is_not_judged(run, listed, file, text, told):
    listed.with_name(file).write_text(text)
    result = run("check", "--lock", file)
    assert result.code == 3 and result.out.startswith(f"Not judged: {told}") and result.out.count(told) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lock", "gone.txt"), "--lock gone.txt: cannot be read: "),
        ((*LOCK, "--target-python", "new"), "--target-python new: a release of Python is expected"),
        ((*LOCK, "--target-python", "3.11,three"), "--target-python three"),
        ((*LOCK, "--target-platform", "bsd"), "--target-platform bsd: system and processor are"),
        ((*LOCK, "--target-gpu", "A1OO"), "--target-gpu A1OO: no GPU of that name is known"),
        ((*LOCK, "--target-gpu", "4090x2x3"), "--target-gpu 4090x2: no GPU of that name is known"),
        ((*LOCK, "--target-gpu", "40900"), "--target-gpu 40900: no GPU of that name is known"),
        ((*LOCK, "--target-gpu", "MI300X"), "give --set machine.accelerators=rocm"),
        ((*LOCK, "--target-gpu", "Ascend 910B"), "give --set machine.accelerators=ascend"),
        ((*LOCK, "--facts", "f.json"), "--lock, --facts: give one of them"),
        ((*LOCK, "--as-of", "May"), "--as-of May: a day is expected, as 2024-05-01"),
        ((*LOCK, "--as-of", "20240501"), "--as-of 20240501: a day is expected"),
        ((*LOCK, "--as-of", "1990-01-01"), "--as-of 1990-01-01: the ledger of releases begins on "),
        (("--target-python", "3.99"), f"{sys.prefix} is installed for Python 3.{sys.version_info[1]}"),
        (("--as-of", "2024-05-01"), "--as-of says when the list of --lock is installed"),
        ((*LOCK, "--as-of", "2024-05-01", "--resolve"), "--resolve asks uv what the list of --lock takes today"),
        (
            (*LOCK, "--target-driver", ",".join(map(str, range(500, 525)))),
            "envdoctor: 25 targets: at most 24 are judged in one run\n",
        ),
    ],
)
def test_what_is_wrong_with_the_words_is_said(run, listed, words, said):
    listed.write_text("torch==2.4.1\n")
    result = run("check", *words)
    assert result.code == 2 and said in result.err and "Traceback" not in result.err


def test_facts_are_of_one_target(run):
    assert run("facts", *LOCK, "--target-gpu", "A100,H100").code == 2


def test_several_targets_are_judged_in_one_run(run, listed):
    listed.write_text("torch==2.4.1\ntransformers==4.48.0\ntokenizers==0.19.1\ntorchvision==0.19.1\n")
    machines = ("--target-python", "3.11,3.13", "--target-gpu", "A100", "--target-gpu", "H100", *LINUX[2:])
    told = run("check", *LOCK, *machines, "--output", "json=report.json")
    assert told.code == 1 and told.out.count("error[tokenizers-outside-transformers-window]") == 1
    assert "Targets      python 3.11, gpu A100: " in told.out and "\n             python 3.13, gpu H100: " in told.out
    assert " (only for python 3.13)\n" in told.out
    data = json.loads((listed.parent / "report.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in data["targets"]][1] == "python 3.11, gpu H100"
    only = {f["id"]: f["targets"] for f in data["findings"] if f["targets"]}
    assert only and set(map(tuple, only.values())) == {("python 3.13",)}


def test_an_open_list_is_judged_as_of_a_day(run, listed):
    listed.write_text("torch==2.1.2\ntransformers==4.36.2\n")
    result = run("check", *LOCK, *LINUX)
    assert result.code == 1 and "error[numpy-2-with-torch-built-for-numpy-1]" in result.out
    assert "numpy 2." in result.out and "(what an install on 20" in result.out
    then = run("check", *LOCK, *LINUX, "--as-of", "2024-01-15")
    assert then.code == 0 and "on 2024-01-15: " in then.out


@pytest.mark.parametrize("command", ["check", "plan"])
def test_what_is_offered_for_a_day_was_released_by_then(run, listed, command):
    listed.write_text("torch==2.5.1\ntransformers==4.46.3\n")
    (listed.parent / "train.py").write_text("from transformers import TrainingArguments\nTrainingArguments('out')\n")
    asked = (command, *LOCK, *LINUX, "--code", "train.py")
    said = "pip install accelerate==1.1.1\n"
    assert "pip install accelerate==1." in (now := run(*asked).out) and said not in now
    assert said in run(*asked, "--as-of", "2024-12-01").out


def test_a_list_that_cannot_be_installed_is_an_error(run, listed):
    listed.write_text("torch==2.5.1\nvllm==0.6.3\n")
    result = run("check", *LOCK, *LINUX)
    assert result.code == 1 and "pip will refuse this file: no release of torch meets all" in result.out
    assert "requirement-conflict" not in result.out and "is installed" not in result.out
    listed.write_text("transformers\nflash-attn\nvllm<0.1\n")
    assert run("check", *LOCK, *LINUX).code == 1


def test_uv_is_asked_only_where_it_can_be(run, listed, monkeypatch):
    program = listed.parent / "uv"
    program.write_text("#!/bin/sh\necho 'torch==2.1.2'\necho 'numpy==2.2.6'\n")
    program.chmod(0o755)
    listed.write_text("torch==2.1.2\nnumpy\n")
    monkeypatch.setenv("PATH", str(listed.parent), prepend=":")
    result = run("check", *LOCK, *LINUX, "--resolve")
    assert result.code == 1 and "numpy 2.2.6 (what uv would install)" in result.out
    assert "--resolve asked uv, which used the network" in result.out
    program.write_text("#!/bin/sh\necho 'error: no network' >&2\nexit 2\n")
    result = run("check", *LOCK, *LINUX, "--resolve")
    assert result.code == 3 and "--resolve: uv failed: error: no network" in result.err
    program.write_text("#!/bin/sh\necho 'x No solution found when resolving: torch==2.1.2 and numpy' >&2\nexit 1\n")
    result = run("check", *LOCK, *LINUX, "--resolve")
    assert result.code == 1 and "error[list-contradicts-itself]" in result.out


@pytest.mark.parametrize(("tag", "code"), [("cp310-cp310", 1), ("cp311-cp311", 0), ("py3-none", 0)])
def test_a_wheel_for_another_python_is_refused(run, listed, tag, code):
    listed.write_text(f"torch==2.5.1\nhttps://example.com/foo_bar-1.0-{tag}-linux_x86_64.whl\n")
    result = run("check", *LOCK, *LINUX, "--format", "json")
    told = [f["message"] for f in result.json["findings"] if f["severity"] == "error"]
    assert (result.code, [f"foo-bar for CPython 3.10 ({tag}" in one for one in told]) == (code, [True] * code)


def test_a_list_without_a_python_says_first_what_was_not_judged(run, listed):
    listed.write_text("torch==2.4.1\n")
    said = "Not judged: whether an installer accepts the list, for no Python is known: give --target-python 3.11"
    assert said in " ".join(run("check", *LOCK).out.split()[:20])
    assert "Not judged" not in run("check", *LOCK, *LINUX).out


def test_a_plan_leaves_the_other_lines_of_a_list_as_they_are(run, listed, tmp_path):
    pins = {"torch": "2.6.0", "transformers": "4.49.0", "trl": "0.15.2", "peft": "0.14.0", "accelerate": "1.4.0"}
    (tmp_path / "train.py").write_text("from trl import SFTConfig\nSFTConfig('out', padding_free=True)\n")

    def found(pins):
        listed.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        return run("check", *LOCK, *LINUX, "--code", "train.py", "--format", "json")

    before = found(pins)
    plan = dict(line.split("==") for line in before.json["plan"]["constraints"])
    assert before.code == 1 and plan.keys() <= {"trl"}
    after = found({**pins, **plan})
    assert after.code == 0 and not after.found.keys() & before.found.keys(), after.found


@pytest.mark.parametrize(
    "text",
    [
        "llamafactory==0.9.3\ntransformers==4.53.0\npeft==0.17.0\naccelerate==1.10.0\ntrl==0.20.0\n",
        "torch==2.5.1\nvllm==0.10.1\nwandb==0.19.10\nprotobuf==7.34.0\nmlflow==2.13.1\npyarrow==20.0.0\nflash-attn\n",
    ],
)
def test_a_list_is_told_the_same_way_whatever_the_seed_of_hashes(run, listed, text):
    """A baseline holds the package that a contradiction is about: it is the same in every process."""
    listed.write_text(text)
    told = set()
    for seed in "1234":
        result = run("check", *LOCK, *LINUX, "--no-cache", "--format", "concise", env={"PYTHONHASHSEED": seed})
        *found, _ = result.out.splitlines()  # the last line says how long it took
        told.add((result.code, *found))
    assert len(told) == 1 and "list-contradicts-itself" in str(told)


@pytest.mark.parametrize(("beside", "severity"), [("", "error"), ("trl==0.21.0\n", "warning")])
def test_what_stops_the_engine_is_an_error_where_the_list_serves_with_it(run, listed, beside, severity):
    listed.write_text(f"vllm==0.10.1\n{beside}")
    result = run("check", *LOCK, *LINUX, "--set", "pkg.transformers=5.1.0", "--format", "json")
    (found,) = (one for one in result.json["findings"] if one["id"].startswith("vllm-before-0-12"))
    assert found["severity"] == severity and found["fixes"][0]["constraints"] == ["transformers==4.57.6"]


@pytest.mark.parametrize(
    ("lines", "planned"),
    [
        ("torch==2.7.1\ntorchvision==0.21.0\ntransformers==4.53.0\n", ["torchvision==0.22.1"]),  # not torch==2.6.0
        # Within the range of who asks: CPOConfig is in trl 0.18 too.
        ("axolotl==0.12.2\ntrl==1.4.0\ntorch==2.6.0\ntransformers==4.55.2\n", ["trl==0.21.0"]),
        # The release of the rule that names one, for all.
        ("transformers==4.44.2\naccelerate==0.34.2\nhuggingface-hub==0.20.3\n", ["huggingface-hub==0.36.2"]),
    ],
)
def test_a_plan_moves_little_and_the_fixes_agree_with_it(run, listed, lines, planned):
    listed.write_text(lines)
    report = run("check", *LOCK, *LINUX, "--format", "json").json
    assert report["plan"]["constraints"] == planned
    ids = {entry["fingerprint"] for entry in report["plan"]["clears"]}
    ended = [case for case in report["findings"] if case["fingerprint"] in ids]
    assert ended and all(planned[0] in " ".join(case["fixes"][0]["commands"]) for case in ended)


def test_what_an_install_takes_is_a_note_and_a_fix_keeps_what_the_model_asks_for(run, listed):
    listed.write_text("torch==2.7.1\nvllm==0.11.0\ntransformers==4.57.1\n")
    result = run("check", *LOCK, *LINUX, "--model", "Qwen/Qwen3-Next-80B-A3B-Instruct", "--format", "json")
    (found,) = (one for one in result.json["findings"] if one["id"] == "release-has-no-wheel-here")
    withheld = {fix["constraints"][0]: fix["withheld"] for fix in found["withheld_fixes"] if fix["constraints"]}
    assert withheld["vllm==0.10.1.1"].endswith("Qwen/Qwen3-Next-80B-A3B-Instruct asks for another vllm")
    assert "warning" not in {notice["level"] for notice in result.json["notices"]}


@pytest.mark.parametrize(
    ("line", "first"), [("numpy==1.26.4\n", "pyarrow=="), ("numpy<2\n", "pyarrow=="), ("-c c.txt\n", "pyarrow==")]
)
def test_a_fix_is_one_that_the_list_allows(run, listed, tmp_path, line, first):
    (tmp_path / "c.txt").write_text("numpy<2\n")
    listed.write_text(f"{line}vllm==0.8.5\ntransformers==4.51.3\ndatasets\n")
    result = run("check", *LOCK, *LINUX, "--format", "json")
    found = result.found["requirement-conflict-stops-import"]
    assert found["fixes"][0]["constraints"][0].startswith(first)
    place = {"numpy<2\n": "requirements.txt:1", "-c c.txt\n": "c.txt:1"}.get(line)
    said = [fix["withheld"] for fix in found.get("withheld_fixes", ())]
    assert said == ([f"{place} asks for numpy<2: that line must change with it"] if place else [])


DPO = """from trl import DPOConfig, DPOTrainer
DPOTrainer("Qwen/Qwen2.5-0.5B-Instruct", args=DPOConfig("out"), train_dataset=data, tokenizer=tokenizer).train()
"""


def test_a_list_whose_trainer_does_not_take_the_calls_of_its_base_class(run, listed, tmp_path):
    rest = "torch==2.5.1\nnumpy==1.26.4\npeft==0.12.0\naccelerate==0.34.2\ndatasets==2.21.0\npyarrow==19.0.1\n"
    (tmp_path / "train.py").write_text(DPO)
    run_of_it = ("--recipe", "train.py", "--code", "train.py", *LINUX, "--format", "json")
    for transformers, fails in (("5.3.0", True), ("4.51.2", True), ("4.46.0", True), ("4.45.2", False)):
        listed.write_text(f"{rest}trl==0.11.4\ntransformers=={transformers}\n")
        result = run("check", *LOCK, *run_of_it)
        assert result.code == fails, transformers
        plan = result.json.get("plan")
        assert plan["constraints"] == ["transformers==4.45.2"] if plan else transformers != "5.3.0"
    assert "class-override-outdated" not in result.found


def test_what_the_installer_refuses_comes_before_what_would_fail_once_it_is_installed(run, listed):
    listed.write_text("torch==2.5.1\nflash-attn==2.7.4.post1\ntransformers==4.48.0\ntokenizers==0.19.1\n")
    lines = run("check", *LOCK, *LINUX, "--set", "pkg.numpy=1.26.4", "--format", "concise").out.splitlines()
    errors = [line.partition("[")[2].partition("]")[0] for line in lines if " error[" in line]
    assert errors[:2] == ["list-builds-without-what-it-needs", "list-contradicts-itself"], errors
    assert errors[2:], errors


FLASH = "https://github.com/Dao-AILab/flash-attention/releases/download"


@pytest.mark.parametrize(
    ("wheel", "fix"),
    [
        ("v2.7.4.post1/flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE", "pip install flash-attn==2.8.3"),
        # of this release there is one
        ("v2.8.3/flash_attn-2.8.3+cu12torch2.6cxx11abiFALSE", "install the build of the package made for this torch"),
    ],
)
def test_a_wheel_for_another_torch_is_one_error_and_its_cure_a_release_for_this_one(run, listed, wheel, fix):
    listed.write_text(f"torch==2.8.0\nflash-attn @ {FLASH}/{wheel}-cp311-cp311-linux_x86_64.whl\n")
    out = run("check", *LOCK, *LINUX).out
    assert "error[extension-named-for-another-torch-release]" in out and fix in out
    assert "abiTRUE" not in out and ("flash-attn==" in out) == ("==" in fix)


LLAMA = "llamafactory takes transformers.models.llama.modeling_llama.LlamaFlashAttention2 (in "
#: By the list: what is said of its framework; nothing where that asks for the version first, or where all is there.
FRAMEWORKS = {
    "llamafactory==0.8.3 transformers==5.0.0": (LLAMA, "import llamafactory", "transformers 5.0.0 has no such name"),
    "llamafactory==0.9.1 transformers==4.52.4": (LLAMA, "pip install transformers==4.45.2", "llamafactory==0.9.3"),
    "llamafactory==0.9.3 transformers==4.52.4": (),
    "axolotl==0.12.2 trl==1.0.0": ("axolotl takes trl.", "trl 1.0.0 has no such"),
    "axolotl==0.12.2 trl==0.21.0": (),
    "gradio==4.31.3 huggingface-hub==2.4.0": ("gradio takes huggingface_hub.HfFolder", "import gradio"),
}


@pytest.mark.parametrize("pins", FRAMEWORKS)
def test_a_list_whose_framework_takes_what_a_release_beside_it_lacks(run, listed, pins):
    listed.write_text("\n".join(pins.split()) + "\n")
    result = run("check", *LOCK, *LINUX, "--no-config")
    assert ("import-takes-what-is-not-there" in result.out) is bool(FRAMEWORKS[pins])
    assert [text for text in FRAMEWORKS[pins] if text not in result.out] == []
