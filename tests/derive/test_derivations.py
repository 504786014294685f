"""Facts that are computed from facts and tables; what was given or observed stands."""

import shutil
from pathlib import Path

import known
import pytest
from known import answer
from observing import shipped

from envdoctor.facts import ABSENT, Fact, FactSet, Records, Unknown
from envdoctor.judge.derivations import derivations, derive
from envdoctor.matrix import load_source

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
        ("2.5.0", Unknown, Unknown),
        ("2.5.0a0+872d972e41.nv24.08", Unknown, Unknown),
        ("2.5.0+gitabc123", Unknown, Unknown),
        ("2.5.0+cu12", Unknown, Unknown),
    ],
)
def test_the_local_tag_of_torch_tells_its_build(derived, version, cuda, hip):
    facts = derived({"pkg.torch": version})
    assert [answer(facts.value(key)) for key in ("torch.cuda", "torch.hip")] == [cuda, hip]
    origin, source = facts.get("torch.cuda").origin, facts.get("torch.cuda").source
    assert cuda is Unknown or (version in origin and source == "derived")


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
        # another index, conda, unknown releases, and tags that were left out
        ({"pkg.torch": "2.9.1a0"}, Unknown),
        ({"pkg.torch": "2.99.0"}, Unknown),
        ({"pkg.torch": "2.9.1", "pkg.torchvision": "0.24.1+cu130"}, Unknown),
        ({"pkg.torch": "2.9.1", "os.platform": "windows"}, Unknown),
        ({"pkg.torch": "2.9.1", "os.platform": "linux", "os.arch": "aarch64"}, Unknown),
        ({"pkg.torch": "2.9.1", "dist": [{"name": "torch", "version": "2.9.1", "kind": "conda"}]}, Unknown),
    ],
)
def test_a_release_without_a_tag_is_taken_for_the_build_of_pypi(facts, cuda):
    found = known.derived(known.given(facts, SHIPPED.registry), SHIPPED)
    if cuda is Unknown:
        assert [answer(found.value(key)) for key in ("torch.cuda", "torch.hip")] == [Unknown, Unknown]
    else:
        origin = f"torch {facts['pkg.torch']} names no build, it is taken for PyPI's"
        assert found.get("torch.cuda") == Fact("torch.cuda", cuda, origin, "assumed")


def test_a_finding_that_rests_on_such_a_build_says_so_and_counts_for_less():
    facts = known.given({"pkg.torch": "2.9.1", "gpu": [{"cc": "6.1"}]}, SHIPPED.registry)
    (finding,) = [one for one in known.judged(facts, SHIPPED).findings if one.id == "gpu-older-than-torch-build"]
    assert finding.caveats == ("torch 2.9.1 names no build, it is taken for PyPI's",)
    assert (finding.severity, finding.confidence, finding.gate) == ("error", "reported", True)


BOTH = {"pkg.nvidia-cudnn-cu11": "8.7.0.84", "pkg.nvidia-cudnn-cu12": "9.1.0.70"}


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({"pkg.torch": None}, "torch.cuda", Unknown("torch is not installed")),
        # what torch itself says stands against its tag
        ({"pkg.torch": "2.5.0+cu118", "torch.cuda": "12.1"}, "torch.cuda", "12.1"),
        # cuDNN is the wheel of torch's CUDA major
        ({"pkg.torch": "2.5.0+cu121", **BOTH}, "torch.cudnn", "9.1.0.70"),
        ({"pkg.torch": "2.5.0+cu118", **BOTH}, "torch.cudnn", "8.7.0.84"),
        ({"pkg.torch": "2.5.0+cpu", **BOTH}, "torch.cudnn", ABSENT),
        ({"pkg.torch": "2.5.0+cu121"}, "torch.cudnn", Unknown),
        ({"gpu": [{"cc": "9.0"}, {"cc": "9.0"}]}, "gpu.count", 2),
        ({"gpu": []}, "gpu.count", 0),
        ({"gpu": None}, "gpu.count", 0),
        ({"dist": []}, "environment.installer", Unknown),
        # the model has a name to call it by
        ({"model.repo": "zai-org/glm-4-9b", "model.path": "/x/y"}, "model.name", "zai-org/glm-4-9b"),
        ({"model.path": "/models/mine/"}, "model.name", "mine"),
        ({"model.path": "C:\\models\\mine"}, "model.name", "mine"),
        ({"model.type": "glm"}, "model.name", "glm"),
        # a folder named like a repository may hold other files
        ({"model.path": "/models/glm-4-9b-chat-hf"}, "model.remote_code", Unknown),
        # what is known of a repository by its name fills what was not read
        ({"model.repo": "zai-org/glm-4-9b"}, "model.remote_code", True),
        ({"model.repo": "zai-org/glm-4-9b-chat-hf", "model.remote_code": True}, "model.remote_code", True),
        # a copy has the type of the model and not its storage
        ({"model.repo": "Quants/GLM-4-9b-chat-hf-AWQ"}, "model.family", "glm4"),
        ({"model.repo": "Quants/GLM-4-9b-chat-hf-AWQ"}, "model.type", "glm"),
        ({"model.repo": "Quants/GLM-4-9b-chat-hf-AWQ"}, "model.quantization", Unknown),
        ({"model.repo": "Quants/GLM-4-9b-chat-hf-AWQ"}, "model.remote_code", Unknown),
        ({"model.repo": "quants/zai-org_glm-4-9b-chat-GGUF"}, "model.family", "glm4"),
        ({"model.repo": "Others/glm-4-9b-chat-AWQ"}, "model.family", Unknown),
    ],
)
def test_what_follows(derived, given, key, value):
    found = derived(given).value(key)
    assert (answer(found) if value is Unknown else found) == value


def test_the_number_of_gpus_is_not_known_when_their_list_is_cut_off(small):
    facts = FactSet([Fact("gpu", Records(({},), "cut off"), "", "machine")])
    assert answer(known.derived(facts, small).value("gpu.count")) is Unknown


def test_the_installer_is_the_one_that_most_distributions_name(derived):
    dist = [{"name": "a", "installer": "uv"}, {"name": "b", "installer": "uv"}, {"name": "c", "installer": "pip"}]
    fact = derived({"dist": [*dist, {"name": "d"}]}).get("environment.installer")
    assert fact.value == "uv" and "2 of 4" in fact.origin


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
    produced = {key for one in derivations() for key in one.outputs}
    for one in derivations():
        for key in (*one.inputs, *one.outputs):
            assert key == "pkg.*" or small.registry.find(key) is not None, key
        assert {key for key in one.inputs if key in produced and key not in one.outputs} <= done
        done |= set(one.outputs)
