"""Companions of torch as an environment shows them: their own version, and their own pin of torch."""

from observing import write

from envdoctor.facts import ABSENT, Records


def test_pin_of_metadata_and_tag_of_the_version_file(bare, make_dist, read):
    make_dist(bare, "torch", "2.13.0")
    assert read(path=bare)[2]["torch_companion"] == Records(())
    requires = ("numpy", "torchgen-x>=1", "torch ==2.13.0", "pillow!=8.3.*")
    make_dist(bare, "torchvision", "0.28.0", lines=[f"Requires-Dist: {line}" for line in requires])
    make_dist(bare, "torchaudio", "2.11.0")
    make_dist(bare, "torchtext", "0.18.0", lines=["Requires-Dist: torch"])
    write(bare, {"torchvision/version.py": "__version__ = '0.28.0+cu130'\n"})
    found = read(path=bare)[2]["torch_companion"]
    assert {item["package"]: (item["version"], item["made_for"]) for item in found} == {
        "torchvision": ("0.28.0+cu130", "==2.13.0"),
        "torchaudio": ("2.11.0", ">=2.11.0"),  # by the table torch-builds
        "torchtext": ("0.18.0", ABSENT),
    }
