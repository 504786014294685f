"""Story 4: glm-4-9b-chat-hf trains with batch size 1 and gives NaN with 2; torch 2.5.0 is at fault, 2.4.1 works."""

from __future__ import annotations

import pytest

REPORTED = {
    "pkg.torch": "2.5.0+cu118",
    "pkg.transformers": "4.48.3",
    "model.repo": "THUDM/glm-4-9b-chat-hf",
    "recipe.batch_size": 2,
}
RULE = "torch-2-5-0-glm4-batch-nan"
GENERAL = "torch-2-5-0-cudnn-sdpa-default-nan"


def findings(run, path, *arguments):
    result = run("check", "--facts", path, "--format", "json", *arguments)
    return result.code, result.json, {finding["id"]: finding for finding in result.json["findings"]}


def test_the_reported_environment_fails_with_cause_fix_and_source(run, facts_file):
    code, _, found = findings(run, facts_file(REPORTED))
    assert code == 1
    finding = found[RULE]
    assert finding["gate"] is True
    assert "pkg.torch" in finding["subjects"]
    assert "torch 2.5.0+cu118" in finding["message"] and "NaN" in finding["message"]
    assert finding["fixes"][0]["constraints"] == ["torch==2.4.1"]
    assert any("2.4.1" in command for command in finding["fixes"][0]["commands"])
    assert "https://github.com/zai-org/GLM-4/issues/724" in [entry["url"] for entry in finding["evidence"]]


def test_it_says_what_is_known_of_2_5_1(run, facts_file):
    _, _, found = findings(run, facts_file(REPORTED))
    texts = " ".join(fix["summary"] for fix in found[RULE]["fixes"] + found[RULE]["withheld_fixes"])
    assert "2.5.1" in texts
    assert ">=2.5.0" in texts and ">=2.5.1" in texts


def test_torch_2_4_1_passes(run, facts_file):
    code, report, _ = findings(run, facts_file({**REPORTED, "pkg.torch": "2.4.1+cu118"}))
    assert code == 0
    assert report["summary"]["error"] == 0


def test_batch_size_1_has_no_such_error(run, facts_file):
    _, _, found = findings(run, facts_file({**REPORTED, "recipe.batch_size": 1}))
    assert RULE not in found


def test_without_a_batch_size_the_assumption_is_named_with_its_reason(run, facts_file):
    facts = {key: value for key, value in REPORTED.items() if key != "recipe.batch_size"}
    code, _, found = findings(run, facts_file(facts))
    assert code == 1
    assumed = {entry["key"]: entry for entry in found[RULE]["assumed"]}
    assert assumed["recipe.batch_size"]["value"] == "8"
    assert "default" in assumed["recipe.batch_size"]["because"]
    text = run("check", "--facts", facts_file(facts)).out
    assert "assumed" in text and "batch size 8" in text


def test_without_a_model_the_rule_could_not_be_checked(run, facts_file):
    facts = {key: value for key, value in REPORTED.items() if key != "model.repo"}
    _, report, found = findings(run, facts_file(facts))
    assert RULE not in found
    missing = {entry["id"]: entry["missing"] for entry in report["not_checked"]}
    assert "model.family" in [item["key"] for item in missing[RULE]]


def test_without_a_model_the_general_rule_still_speaks_where_it_applies(run, facts_file):
    hopper = {"pkg.torch": "2.5.0+cu124", "gpu": [{"name": "NVIDIA H100 80GB HBM3", "cc": "9.0"}]}
    code, _, found = findings(run, facts_file(hopper))
    assert code == 1 and GENERAL in found
    ampere = {**hopper, "gpu": [{"name": "NVIDIA A100-SXM4-80GB", "cc": "8.0"}]}
    _, _, found = findings(run, facts_file(ampere))
    assert GENERAL not in found


def test_nothing_of_this_machine_leaks_into_the_judgement(run, facts_file):
    path = facts_file(REPORTED)
    plain = run("check", "--facts", path, "--format", "json").out
    dressed = run(
        "check", "--facts", path, "--format", "json", env={"CUDA_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "/nowhere"}
    ).out
    assert plain == dressed
    keys = run("check", "--facts", path, "--format", "json").json["facts"]
    assert not [key for key in keys if key.startswith(("os.", "env.", "python.", "gpu", "driver."))]


@pytest.mark.parametrize("name", ["zai-org/glm-4-9b-chat-hf", "thudm/GLM-4-9B-chat-hf", "THUDM/glm-4-9b-hf"])
def test_the_organisations_rename_and_the_base_model_are_one_family(run, facts_file, name):
    code, _, found = findings(run, facts_file({**REPORTED, "model.repo": name}))
    assert code == 1 and RULE in found


def test_the_terminal_report_can_be_acted_on(run, facts_file):
    result = run("check", "--facts", facts_file(REPORTED))
    assert result.code == 1
    lines = result.out.splitlines()
    assert any(line.startswith(f"error[{RULE}]") for line in lines)
    assert any(line.strip().startswith("fix") and "2.4.1" in line for line in lines)
    assert "github.com/zai-org/GLM-4/issues/724" in result.out
    assert "1 error" in result.out


COMPANIONS = {
    "torch": ("2.5.0+cu118", ()),
    "torchvision": ("0.20.0+cu118", ("torch==2.5.0",)),
    "torchaudio": ("2.5.0+cu118", ("torch==2.5.0",)),
    "transformers": ("4.48.3", ()),
}


def test_the_fix_brings_torchvision_and_torchaudio_of_its_release(run, tmp_path):
    """In an environment where they were installed with torch 2.5.0, as its own instructions say."""
    for name, (version, requires) in COMPANIONS.items():
        info = tmp_path / "site" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        head = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {x}" for x in requires)]
        (info / "METADATA").write_text("\n".join(head) + "\n\n")
    where = ("--path", str(tmp_path / "site"), "--set", "model.repo=THUDM/glm-4-9b-chat-hf")
    report = run("check", *where, "--set", "recipe.batch_size=2", "--format", "json").json
    finding = next(finding for finding in report["findings"] if finding["id"] == RULE)
    first = finding["fixes"][0]
    assert first["constraints"] == ["torch==2.4.1"]
    assert all(
        part in first["commands"][0]
        for part in ("torch==2.4.1", "torchvision==0.19.1", "torchaudio==2.4.1", "download.pytorch.org/whl/cu118")
    )
    assert not finding["withheld_fixes"] or all("2.4.1" not in fix["summary"] for fix in finding["withheld_fixes"])
