"""Story 4: glm-4-9b-chat-hf trains with batch size 1 and gives NaN with 2; torch 2.5.0 is at fault, 2.4.1 works."""

import pytest
from dists import install

REPORTED = {
    "pkg.torch": "2.5.0+cu118",
    "pkg.transformers": "4.48.3",
    "model.repo": "THUDM/glm-4-9b-chat-hf",
    "recipe.batch_size": 2,
}
RULE = "torch-2-5-0-glm4-batch-nan"
GENERAL = "torch-2-5-0-cudnn-sdpa-default-nan"


@pytest.fixture
def check(run, facts_file):
    """``check`` of the reported environment with these facts changed (None: not known)."""

    def check(*words, changed=None, **options):
        facts = {key: value for key, value in {**REPORTED, **(changed or {})}.items() if value is not None}
        return run("check", "--facts", facts_file(facts), *words, **options)

    return check


def test_the_reported_environment_fails_with_cause_fix_and_source(check):
    result = check("--format", "json")
    finding = result.found[RULE]
    assert result.code == 1 and finding["gate"] is True and "pkg.torch" in finding["subjects"]
    assert "torch 2.5.0+cu118" in finding["message"] and "NaN" in finding["message"]
    assert finding["fixes"][0]["constraints"] == ["torch==2.4.1"]
    assert any("2.4.1" in command for command in finding["fixes"][0]["commands"])
    assert "https://github.com/zai-org/GLM-4/issues/724" in [entry["url"] for entry in finding["evidence"]]
    texts = " ".join(fix["summary"] for fix in finding["fixes"] + finding["withheld_fixes"])
    assert all(release in texts for release in ("2.5.1", ">=2.5.0", ">=2.5.1"))


HOPPER = {"pkg.torch": "2.5.0+cu124", "gpu": [{"name": "NVIDIA H100 80GB HBM3", "cc": "9.0"}]}
AMPERE = {**HOPPER, "gpu": [{"name": "NVIDIA A100-SXM4-80GB", "cc": "8.0"}]}
BARE = {"model.repo": None, "recipe.batch_size": None, "pkg.transformers": None}


@pytest.mark.parametrize(
    ("changed", "rule", "told", "code"),
    [
        ({"pkg.torch": "2.4.1+cu118"}, RULE, False, 0),
        ({"recipe.batch_size": 1}, RULE, False, 0),
        ({**BARE, **HOPPER}, GENERAL, True, 1),  # without a model the general rule still speaks
        ({**BARE, **AMPERE}, GENERAL, False, 0),
    ],
)
def test_another_torch_batch_size_or_gpu(check, changed, rule, told, code):
    result = check("--format", "json", changed=changed)
    assert (rule in result.found, result.code) == (told, code)


def test_without_a_batch_size_the_assumption_is_named_with_its_reason(check):
    unknown = {"recipe.batch_size": None}
    result = check("--format", "json", changed=unknown)
    assumed = {entry["key"]: entry for entry in result.found[RULE]["assumed"]}
    assert result.code == 1 and assumed["recipe.batch_size"]["value"] == "8"
    assert "default" in assumed["recipe.batch_size"]["because"]
    text = check(changed=unknown).out
    assert "assumed" in text and "batch size 8" in text


def test_without_a_model_the_rule_could_not_be_checked(check):
    result = check("--format", "json", changed={"model.repo": None})
    assert RULE not in result.found
    missing = {entry["id"]: entry["missing"] for entry in result.json["not_checked"]}
    assert "model.family" in [item["key"] for item in missing[RULE]]


def test_nothing_of_this_machine_leaks_into_the_judgement(check):
    plain = check("--format", "json")
    dressed = check("--format", "json", env={"CUDA_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "/nowhere"})
    assert plain.out == dressed.out
    leaked = ("os.", "env.", "python.", "gpu", "driver.")
    assert not [key for key in plain.json["facts"] if key.startswith(leaked)]


def test_the_fix_brings_torchvision_and_torchaudio_of_its_release(run, tmp_path):
    """In an environment where they were installed with torch 2.5.0, as its own instructions say."""
    for name, version in {"torch": "2.5.0", "torchvision": "0.20.0", "torchaudio": "2.5.0"}.items():
        asks = ["Requires-Dist: torch==2.5.0"] if name != "torch" else []
        install(tmp_path / "site", name, f"{version}+cu118", *asks)
    install(tmp_path / "site", "transformers", "4.48.3")
    facts = ("--set", "model.repo=THUDM/glm-4-9b-chat-hf", "--set", "recipe.batch_size=2")
    finding = run("check", "--path", "site", *facts, "--format", "json").found[RULE]
    first = finding["fixes"][0]
    assert first["constraints"] == ["torch==2.4.1"]
    parts = ("torch==2.4.1", "torchvision==0.19.1", "torchaudio==2.4.1", "download.pytorch.org/whl/cu118")
    assert all(part in first["commands"][0] for part in parts)
    assert all("2.4.1" not in fix["summary"] for fix in finding["withheld_fixes"])
