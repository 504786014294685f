"""Bills of materials: packages of Python and conda by their purl, each with its line."""

import json

import pytest
from locking import LOCKS, opened

from envdoctor.facts import ABSENT
from envdoctor.observe import LockError

CYCLONEDX = {"bomFormat": "CycloneDX", "specVersion": "1.6"}


@pytest.fixture
def write(tmp_path):
    def write(document, indent=1):
        text = document if isinstance(document, str) else json.dumps(document, indent=indent)
        (tmp_path / "bom.json").write_text(text)
        return opened("bom.json", tmp_path)

    return write


def component(purl, **more):
    return {"type": "library", "name": "x", "purl": purl, **more}


def test_what_uv_writes_counts_by_its_markers():
    found = opened("uv.cdx.json")
    lines = (LOCKS / "uv.cdx.json").read_text().splitlines()
    assert found.version("torch") == "2.6.0+cpu" and "torch@2.6.0%2Bcpu" in lines[found.place("torch") - 1]
    assert opened("uv.cdx.json", platform="macos-arm64").version("torch") == "2.6.0"
    assert found.version("peft") == ABSENT


def test_components_within_components_and_packages_of_conda_count(write):
    build = "pkg:conda/pytorch@2.5.1?build=cuda126_py312_300&subdir=linux-64&channel=conda-forge"
    inner = component("pkg:deb/ubuntu/openssl@3", components=[component("pkg:pypi/Flash_Attn@2.7.4?package-id=1")])
    found = write({**CYCLONEDX, "components": [component(build), inner]})
    assert (found.version("torch"), found.version("flash-attn")) == ("2.5.1", "2.7.4")
    assert found.facts.value("torch.cuda") == "12.6" and found.facts.value("os.platform") == "linux"


def test_a_document_of_spdx_names_packages_by_references(write):
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl"}
    package = {"name": "torch", "externalRefs": [{**reference, "referenceLocator": "pkg:pypi/torch@2.4.1"}]}
    document = {"spdxVersion": "SPDX-2.3", "packages": [package]}
    assert write(document).facts.get("pkg.torch")[1:3] == ("2.4.1", "bom.json:10")
    assert write(document, indent=None).facts.get("pkg.torch").origin == "bom.json"


def test_two_versions_of_one_package_are_none(write):
    twice = [component("pkg:pypi/torch@2.4.1"), component("pkg:pypi/torch@2.5.1")]
    assert write({**CYCLONEDX, "components": twice}).reason("torch").endswith("ask for different versions")


def nested(depth):
    return '{"bomFormat": "CycloneDX", "components": [' + '{"components": [' * depth + "]}" * depth + "]}"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "is not JSON: "),
        ({"name": "x"}, "is no bill of materials by CycloneDX or SPDX"),
        ({**CYCLONEDX, "components": []}, "names no package"),
        (nested(30), "is nested more than 20 levels deep"),
        (nested(100_000), "is nested too deeply, or too large, to be read"),
        ({**CYCLONEDX, "components": [component("pkg:pypi/a@1")] * 20_001}, "names more than 20,000 packages"),
    ],
)
def test_a_hostile_document_is_one_sentence(write, document, problem):
    with pytest.raises(LockError) as error:
        write(document)
    assert str(error.value).startswith(f"--lock bom.json: {problem}")
