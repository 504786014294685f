"""``check --lock``: what would be installed is judged before anything is, for a machine that is stated."""

from __future__ import annotations

from locking import LOCKS

LIST = """--extra-index-url https://download.pytorch.org/whl/cu121
torch==2.4.1
transformers==4.48.0
tokenizers==0.19.1
trl==0.9.6
numpy==2.1.0
"""
LINUX = ("--target-python", "3.11", "--target-platform", "linux-x86_64")


def test_findings_point_at_the_lines_of_the_list(run, tmp_path):
    (tmp_path / "requirements.txt").write_text(LIST)
    result = run("check", "--lock", "requirements.txt", *LINUX, "--format", "json")
    found = {f["id"]: [(place["path"], place["line"]) for place in f["locations"]] for f in result.json["findings"]}
    assert result.code == 1 and result.json["target"] == {
        "kind": "lock",
        "path": "requirements.txt",
        "because": "--lock",
    }
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


def test_facts_of_a_lock_are_judged_elsewhere(run, tmp_path):
    (tmp_path / "requirements.txt").write_text(LIST)
    (tmp_path / "facts.json").write_text(
        run("facts", "--lock", "requirements.txt", *LINUX, "--format", "json").out, encoding="utf-8"
    )
    result = run("check", "--facts", "facts.json", "--format", "json")
    assert "tokenizers-outside-transformers-window" in [f["id"] for f in result.json["findings"]]


def test_a_list_without_any_version_is_not_judged(run, tmp_path):
    (tmp_path / "requirements.txt").write_text("torch\ntransformers>=4.40\n")
    result = run("check", "--lock", "requirements.txt")
    assert result.code == 3 and result.out.startswith(
        "Not judged: no version of a package is known from requirements.txt"
    )
    assert "torch not known (requirements.txt:1 names no version)" in result.out


def test_what_is_wrong_with_the_words_is_said(run, tmp_path):
    (tmp_path / "requirements.txt").write_text(LIST)
    for words, said in (
        (("--lock", "gone.txt"), "--lock gone.txt: cannot be read: "),
        (
            ("--lock", "requirements.txt", "--target-python", "new"),
            "--target-python new: a release of Python is expected",
        ),
        (("--lock", "requirements.txt", "--target-platform", "bsd"), "--target-platform bsd: system and processor are"),
        (
            ("--lock", "requirements.txt", "--target-gpu", "A1OO"),
            "--target-gpu gpu.name=A1OO: no GPU of that name is known",
        ),
        (("--lock", "requirements.txt", "--target-gpu", "MI300X"), "give --set machine.accelerators=rocm"),
        (("--lock", "requirements.txt", "--target-gpu", "Ascend 910B"), "give --set machine.accelerators=ascend"),
        (("--lock", "requirements.txt", "--facts", "f.json"), "--lock, --facts: give one of them"),
    ):
        result = run("check", *words)
        assert result.code == 2 and said in result.err and "Traceback" not in result.err


def test_several_targets_are_judged_in_one_run(run, tmp_path):
    (tmp_path / "requirements.txt").write_text(LIST + "torchvision==0.19.1\n")
    machines = ("--target-python", "3.11,3.13", "--target-gpu", "A100", "--target-gpu", "H100", *LINUX[2:])
    told = run("check", "--lock", "requirements.txt", *machines)
    assert told.code == 1 and told.out.count("error[tokenizers-outside-transformers-window]") == 1
    assert "Targets      python 3.11, gpu A100: " in told.out and "\n             python 3.13, gpu H100: " in told.out
    assert " (only for python 3.13)\n" in told.out
    data = run("check", "--lock", "requirements.txt", *machines, "--format", "json").json
    assert [one["name"] for one in data["targets"]][1] == "python 3.11, gpu H100"
    only = {f["id"]: f["targets"] for f in data["findings"] if f["targets"]}
    assert only and set(map(tuple, only.values())) == {("python 3.13",)}


def test_a_target_that_is_none_and_too_many_of_them_are_sentences(run, tmp_path):
    (tmp_path / "requirements.txt").write_text(LIST)
    told = run("check", "--lock", "requirements.txt", "--target-python", "3.11,three")
    assert (told.code, told.err.split(":")[1]) == (2, " --target-python three")
    many = run("check", "--lock", "requirements.txt", "--target-driver", ",".join(map(str, range(500, 525))))
    assert (many.code, many.err) == (2, "envdoctor: 25 targets: at most 24 are judged in one run\n")
    assert run("facts", "--lock", "requirements.txt", "--target-gpu", "A100,H100").code == 2
