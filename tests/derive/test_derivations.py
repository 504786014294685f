"""Facts that are computed from facts and tables; what was given or observed stands."""

import shutil
from pathlib import Path

import known
import pytest
from known import answer
from observing import shipped
from tables import rows

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


@rows("version cuda hip")
def test_the_local_tag_of_torch_tells_its_build(derived, version, cuda, hip):
    facts = derived({"pkg.torch": version})
    assert [answer(facts.value(key)) for key in ("torch.cuda", "torch.hip")] == [cuda, hip]
    origin, source = facts.get("torch.cuda").origin, facts.get("torch.cuda").source
    assert cuda is Unknown or (version in origin and source == "derived")


@rows("facts cuda")
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


@rows("given key value")
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


@rows("given family")
def test_the_family_of_a_model(derived, given, family):
    assert derived(given).value("model.family") == family


@rows("given reason")
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


@rows("kind transformers since registered")
def test_a_type_is_known_from_its_first_release_on(kind, transformers, since, registered):
    packages = {"pkg__transformers": transformers} if transformers else {}
    found = known.following(model__type=kind, **packages)
    assert answer(found.value("model.registered")) is registered
    assert since is ... or answer(found.value("model.registered_since")) == since


@rows("key framework by")
def test_whose_code_runs_and_trains_the_model(key, framework, by):
    assert known.following(recipe__framework=framework).value(key) == by
    assert answer(known.following().value(key)) is Unknown
