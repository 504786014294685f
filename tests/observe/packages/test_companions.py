"""Companions of torch as an environment shows them: their own version, and their own pin of torch."""

from __future__ import annotations

from envdoctor.facts import ABSENT, Records


def header(name: str, version: str, *requires: str) -> str:
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}\nAbout it.\n"


def test_pin_of_metadata_and_tag_of_the_version_file(tmp_path, make_dist, read):
    site = tmp_path / "packages"
    make_dist(site, "torch", "2.13.0")
    requires = ("numpy", "torchgen-x>=1", "torch ==2.13.0", "pillow!=8.3.*")
    make_dist(site, "torchvision", "0.28.0", header=header("torchvision", "0.28.0", *requires))
    make_dist(site, "torchaudio", "2.11.0")
    make_dist(site, "torchtext", "0.18.0", header=header("torchtext", "0.18.0", "torch"))
    (site / "torchvision").mkdir()
    (site / "torchvision" / "version.py").write_text("__version__ = '0.28.0+cu130'\n")
    _, _, facts = read(path=site)
    found = facts["torch_companion"]
    assert isinstance(found, Records)
    assert {item["package"]: (item["version"], item["made_for"]) for item in found} == {
        "torchvision": ("0.28.0+cu130", "==2.13.0"),
        "torchaudio": ("2.11.0", ">=2.11.0"),  # by the table torch-builds
        "torchtext": ("0.18.0", ABSENT),
    }


def test_an_environment_without_companions_has_none(tmp_path, make_dist, read):
    make_dist(tmp_path / "packages", "torch", "2.13.0")
    _, _, facts = read(path=tmp_path / "packages")
    assert facts["torch_companion"] == Records(())
