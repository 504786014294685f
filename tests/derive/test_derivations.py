"""Facts that are computed from facts and tables; what was given or observed stands."""

from __future__ import annotations

import shutil
from pathlib import Path

import known
import pytest
from observing import shipped

from envdoctor.derive import derivations, derive
from envdoctor.facts import ABSENT, Fact, FactSet, Records, Unknown
from envdoctor.knowledge import load_source

MATRICES = Path(__file__).resolve().parents[2] / "matrices"
SHIPPED = shipped()
FAMILIES = """
[organisations]
THUDM = "zai-org"

[copies]
organisations = ["Quants"]
endings = ["-gguf", "-awq"]

[[family]]
id = "glm4v"
repos = ["zai-org/glm-4v-*"]
shared_types = ["chatglm"]

[[family]]
id = "glm4"
repos = ["zai-org/glm-4-*", "zai-org/glm-?-chat"]
except = ["zai-org/glm-4-*-0414"]
types = ["glm"]
shared_types = ["chatglm"]
architectures = ["GlmForCausalLM"]
  [[family.known]]
  repos = ["zai-org/glm-4-*-hf"]
  facts = { "model.type" = "glm", "model.remote_code" = false, "model.quantization" = "absent", \
"model.architectures" = ["GlmForCausalLM"] }
  [[family.known]]
  repos = ["zai-org/glm-4-*"]
  facts = { "model.type" = "chatglm", "model.remote_code" = true }

[[family]]
id = "llama"
repos = ["meta-llama/*"]
types = ["llama"]
"""


@pytest.fixture
def small(tmp_path):
    """A matrix with three families and no rules."""
    shutil.copy(MATRICES / "facts.toml", tmp_path)
    (tmp_path / "families.toml").write_text(FAMILIES)
    return load_source(tmp_path, source="test")


@pytest.fixture
def derived(small):
    """All facts after derivation."""

    return lambda values: known.derived(known.given(values, small.registry), small)


# --- torch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "cuda", "hip"),
    [
        ("2.5.0+cu118", "11.8", ABSENT),
        ("2.9.0+cu130", "13.0", ABSENT),
        ("2.9.0+cu1210", "12.10", ABSENT),
        ("2.0.0+cu117.with.pypi.cudnn", "11.7", ABSENT),
        ("2.5.0+CU121", "12.1", ABSENT),
        ("2.5.0+cpu", ABSENT, ABSENT),
        ("2.5.0+cpu.cxx11.abi", ABSENT, ABSENT),
        ("2.5.0+rocm6.2", ABSENT, "6.2"),
        ("2.8.0+rocm6.4.git1a2b3c", ABSENT, "6.4"),
        ("2.7.0+xpu", ABSENT, ABSENT),
    ],
)
def test_the_local_tag_of_torch_tells_its_build(derived, version, cuda, hip):
    facts = derived({"pkg.torch": version})
    assert facts.value("torch.cuda") == cuda and facts.value("torch.hip") == hip
    assert version in facts.get("torch.cuda").origin and facts.get("torch.cuda").source == "derived"


@pytest.mark.parametrize("version", ["2.5.0", "2.5.0a0+872d972e41.nv24.08", "2.5.0+gitabc123", "2.5.0+cu12"])
def test_a_version_without_such_a_tag_tells_nothing(derived, version):
    assert isinstance(derived({"pkg.torch": version}).value("torch.cuda"), Unknown)


LISTED = [{"name": "torch", "version": "2.9.1", "kind": "wheel"}]


@pytest.mark.parametrize(
    ("facts", "cuda"),
    [
        ({"pkg.torch": "2.9.1"}, "12.8"),
        ({"pkg.torch": "2.9.1", "os.platform": "linux", "os.arch": "x86_64"}, "12.8"),
        ({"pkg.torch": "2.9.1", "os.platform": "linux", "os.arch": "aarch64", "dist": LISTED}, ABSENT),
        ({"pkg.torch": "2.11.0", "os.platform": "linux", "os.arch": "aarch64"}, "13.0"),
        ({"pkg.torch": "2.9.1", "os.platform": "windows", "dist": LISTED}, ABSENT),
        ({"pkg.torch": "2.9.1", "os.platform": "darwin"}, ABSENT),
    ],
)
def test_a_release_without_a_tag_is_taken_for_the_build_of_pypi(facts, cuda):
    found = known.derived(known.given(facts, SHIPPED.registry), SHIPPED).get("torch.cuda")
    assert (found.value, found.source) == (cuda, "assumed")
    assert found.origin == f"torch {facts['pkg.torch']} names no build, it is taken for PyPI's"


@pytest.mark.parametrize(
    "facts",
    [
        {"pkg.torch": "2.9.1a0"},
        {"pkg.torch": "2.99.0"},
        {"pkg.torch": "2.9.1", "pkg.torchvision": "0.24.1+cu130"},
        {"pkg.torch": "2.9.1", "os.platform": "windows"},
        {"pkg.torch": "2.9.1", "os.platform": "linux", "os.arch": "aarch64"},
        {"pkg.torch": "2.9.1", "dist": [{"name": "torch", "version": "2.9.1", "kind": "conda"}]},
    ],
)
def test_another_index_conda_unknown_releases_and_tags_left_out_are_not_taken_for_pypis(facts):
    found = known.derived(known.given(facts, SHIPPED.registry), SHIPPED)
    assert isinstance(found.value("torch.cuda"), Unknown) and isinstance(found.value("torch.hip"), Unknown)


def test_a_finding_that_rests_on_such_a_build_says_so_and_counts_for_less():
    facts = known.given({"pkg.torch": "2.9.1", "gpu": [{"cc": "6.1"}]}, SHIPPED.registry)
    (finding,) = [one for one in known.judged(facts, SHIPPED).findings if one.id == "gpu-older-than-torch-build"]
    assert finding.caveats == ("torch 2.9.1 names no build, it is taken for PyPI's",)
    assert (finding.severity, finding.confidence, finding.gate) == ("error", "reported", True)


def test_without_torch_there_is_no_build_to_know(derived):
    assert derived({"pkg.torch": None}).value("torch.cuda") == Unknown("torch is not installed")


def test_what_torch_itself_says_stands_against_its_tag(derived):
    assert derived({"pkg.torch": "2.5.0+cu118", "torch.cuda": "12.1"}).value("torch.cuda") == "12.1"


def test_cudnn_is_the_wheel_of_torchs_cuda_major(derived):
    both = {"pkg.nvidia-cudnn-cu11": "8.7.0.84", "pkg.nvidia-cudnn-cu12": "9.1.0.70"}
    assert derived({"pkg.torch": "2.5.0+cu121", **both}).value("torch.cudnn") == "9.1.0.70"
    assert derived({"pkg.torch": "2.5.0+cu118", **both}).value("torch.cudnn") == "8.7.0.84"
    assert derived({"pkg.torch": "2.5.0+cpu", **both}).value("torch.cudnn") is ABSENT
    assert isinstance(derived({"pkg.torch": "2.5.0+cu121"}).value("torch.cudnn"), Unknown)


# --- machine and installer -----------------------------------------------------------------------------------------


def test_the_number_of_gpus_is_known_when_their_list_is_complete(derived, small):
    assert derived({"gpu": [{"cc": "9.0"}, {"cc": "9.0"}]}).value("gpu.count") == 2
    assert derived({"gpu": []}).value("gpu.count") == 0
    assert derived({"gpu": None}).value("gpu.count") == 0
    facts = FactSet([Fact("gpu", Records(({},), "cut off"), "", "machine")])
    derive(facts, small)
    assert isinstance(facts.value("gpu.count"), Unknown)


def test_the_installer_is_the_one_that_most_distributions_name(derived):
    dist = [{"name": "a", "installer": "uv"}, {"name": "b", "installer": "uv"}, {"name": "c", "installer": "pip"}]
    fact = derived({"dist": [*dist, {"name": "d"}]}).get("environment.installer")
    assert fact.value == "uv" and "2 of 4" in fact.origin
    assert isinstance(derived({"dist": []}).value("environment.installer"), Unknown)


# --- model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "family"),
    [
        ({"model.repo": "zai-org/glm-4-9b-chat-hf"}, "glm4"),
        ({"model.repo": "THUDM/GLM-4-9B"}, "glm4"),  # the organisation's former name, any case
        ({"model.repo": "zai-org/glm-4v-9b"}, "glm4v"),  # the first family that matches
        ({"model.repo": "zai-org/glm-4-9b", "model.type": "llama"}, "llama"),  # what it holds says more than its name
        ({"model.path": "/models/glm-4-9b-chat"}, "glm4"),
        ({"model.path": "C:\\models\\glm-4-9b\\"}, "glm4"),
        ({"model.path": "/models/mine", "model.type": "glm"}, "glm4"),
        ({"model.path": "/models/mine", "model.architectures": ["GlmForCausalLM"]}, "glm4"),
        ({"model.repo": "me/llama-tuned", "model.type": "llama"}, "llama"),
        ({"model.type": "mamba"}, ABSENT),
        ({"model.repo": "zai-org/glm-4-9b", "model.family": "llama"}, "llama"),  # given explicitly
    ],
)
def test_the_family_of_a_model(derived, given, family):
    assert derived(given).value("model.family") == family


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"model.repo": "me/mystery"}, "the family of me/mystery is not known by name"),
        ({"model.path": "/m/mine", "model.type": "chatglm"}, "glm4v, glm4 all have model type chatglm"),
        ({"model.repo": "zai-org/glm-4-9b-0414"}, "is not known by name"),
    ],
)
def test_a_family_that_cannot_be_told_is_unknown_with_the_reason(derived, given, reason):
    value = derived(given).value("model.family")
    assert isinstance(value, Unknown) and reason in value.reason


def test_without_a_model_nothing_is_said_of_one(derived):
    assert not [fact.key for fact in derived({"pkg.torch": "2.5.0"}) if fact.key.startswith("model.")]


def test_what_is_known_of_a_repository_by_its_name_fills_what_was_not_read(derived):
    facts = derived({"model.repo": "THUDM/glm-4-9b-chat-hf", "model.type": "glm"})
    assert facts.value("model.remote_code") is False
    assert facts.value("model.quantization") is ABSENT
    assert facts.value("model.architectures") == ("GlmForCausalLM",)
    assert "families.toml" in facts.get("model.remote_code").origin
    assert derived({"model.repo": "zai-org/glm-4-9b"}).value("model.remote_code") is True


def test_a_copy_has_the_type_of_the_model_and_not_its_storage(derived):
    found = derived({"model.repo": "Quants/GLM-4-9b-chat-hf-AWQ"})
    assert (found.value("model.family"), found.value("model.type")) == ("glm4", "glm")
    assert isinstance(found.value("model.quantization"), Unknown) and isinstance(
        found.value("model.remote_code"), Unknown
    )
    assert derived({"model.repo": "quants/zai-org_glm-4-9b-chat-GGUF"}).value("model.family") == "glm4"
    assert isinstance(derived({"model.repo": "Others/glm-4-9b-chat-AWQ"}).value("model.family"), Unknown)


def test_a_folder_named_like_a_repository_may_hold_other_files(derived):
    facts = derived({"model.path": "/models/glm-4-9b-chat-hf"})
    assert facts.value("model.family") == "glm4"
    assert isinstance(facts.value("model.remote_code"), Unknown)


def test_what_was_read_stands_against_what_the_name_says(derived):
    facts = derived({"model.repo": "zai-org/glm-4-9b-chat-hf", "model.remote_code": True})
    assert facts.value("model.remote_code") is True


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"model.repo": "zai-org/glm-4-9b", "model.path": "/x/y"}, "zai-org/glm-4-9b"),
        ({"model.path": "/models/mine/"}, "mine"),
        ({"model.path": "C:\\models\\mine"}, "mine"),
        ({"model.type": "glm"}, "glm"),
    ],
)
def test_the_model_has_a_name_to_call_it_by(derived, given, name):
    assert derived(given).value("model.name") == name


# --- running -------------------------------------------------------------------------------------------------------


def test_an_observations_own_reason_is_kept(small):
    facts = FactSet([Fact("pkg.torch", "2.5.0", "", ""), Fact("torch.cuda", Unknown("version.py is damaged"), "", "")])
    derive(facts, small)
    assert facts.value("torch.cuda") == Unknown("version.py is damaged")


def test_deriving_twice_changes_nothing(derived, small):
    facts = derived({"pkg.torch": "2.5.0+cu118", "model.repo": "zai-org/glm-4-9b-hf", "gpu": [{"cc": "9.0"}]})
    before = list(facts)
    derive(facts, small)
    assert list(facts) == before


def test_every_derivation_names_registered_facts_and_runs_after_its_inputs(small):
    done: set[str] = set()
    produced = {key for module in derivations() for key in module.OUTPUTS}
    for module in derivations():
        for key in (*module.INPUTS, *module.OUTPUTS):
            assert key == "pkg.*" or small.registry.find(key) is not None, key
        assert {key for key in module.INPUTS if key in produced and key not in module.OUTPUTS} <= done
        done |= set(module.OUTPUTS)
