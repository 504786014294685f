"""What stops imports in a folder of packages, by the observation."""

from pathlib import Path

import pytest
from observing import ask, choose
from rooms import observer, observing

from envdoctor.facts import ABSENT, FactSet, Records
from envdoctor.observe.gather import gather

link = observer("link")


def write(site: Path, name: str, version: str, **files: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n")
    (site / name).mkdir()
    for file, source in files.items():
        (site / name / f"{file}.py").write_text(source)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a peft that takes HybridCache of a transformers without it."""
    write(
        tmp_path,
        "peft",
        "0.17.0",
        __init__="from .model import x\n",
        model="x = 1\nfrom transformers import HybridCache\n",
    )
    write(tmp_path, "transformers", "5.23.0", __init__="class Cache: ...\n")
    return tmp_path


def read(site: Path) -> FactSet:
    return gather(ask(choose(path=site))._replace(platform="linux"), ["packages", "source"])


def links(facts: FactSet) -> Records:
    value = facts.value("link")
    assert isinstance(value, Records)
    return value


def test_one_item_names_both_packages_and_the_place(site: Path) -> None:
    facts = read(site)
    (item,) = links(facts).items
    assert (item["consumer"], item["consumer_version"]) == ("peft", "0.17.0")
    assert (item["provider"], item["provider_version"]) == ("transformers", "5.23.0")
    assert (item["kind"], item["name"], item["place"]) == ("name", "transformers.HybridCache", "peft/model:2")
    assert str(item["stops"]).startswith("import peft")
    assert links(facts).incomplete is None
    read_packages = facts.value("link_read")
    assert isinstance(read_packages, Records)
    assert [one["package"] for one in read_packages] == ["peft", "transformers"]


def test_a_package_that_is_not_installed_has_no_version(site: Path) -> None:
    (site / "peft" / "model.py").write_text("x = 1\nimport yaml\n")
    (item,) = links(read(site)).items
    assert (item["provider"], item["provider_version"], item["kind"]) == ("pyyaml", ABSENT, "module")


@pytest.mark.parametrize(("said", "stops"), [("0.19.1", True), ("0.23.1", False)])
def test_a_version_that_code_compares_is_that_of_metadata(tmp_path: Path, said: str, stops: bool) -> None:
    asks = """
from importlib.metadata import version
from packaging.version import parse
if parse(version("tokenizers")) < parse("0.22"):
    raise ImportError("tokenizers>=0.22 is required")
"""
    write(tmp_path, "peft", "0.17.0", __init__=asks)
    write(tmp_path, "packaging", "26.0", __init__="")
    (tmp_path / "packaging" / "version.py").write_text("def parse(text): ...\n")
    write(tmp_path, "tokenizers", "0.23.3", __init__="")
    file = tmp_path / "tokenizers-0.23.3.dist-info" / "METADATA"
    file.write_text(file.read_text().replace("0.23.3", said))
    assert [item["consumer"] for item in links(read(tmp_path))] == ["peft"] * stops


def test_what_serves_another_package_is_begun_with_where_that_package_is(tmp_path: Path) -> None:
    write(tmp_path, "safetensors", "0.6.2", __init__="safe_open = 1\n", torch="from torch import gone\nload_file = 1\n")
    assert links(read(tmp_path)) == Records(())
    write(tmp_path, "torch", "2.13.0", __init__="")
    assert [item["name"] for item in links(read(tmp_path))] == ["torch.gone"]


def test_what_a_package_requires_is_followed_where_no_compiled_file_can_hold_its_names(tmp_path: Path) -> None:
    write(tmp_path, "gradio", "6.31.0", __init__="import starlette\n")
    write(tmp_path, "starlette", "1.0.0", __init__="from gradio_client import gone\n")
    write(tmp_path, "gradio_client", "2.0.0", __init__="import absent\nimport unasked\n")
    write(tmp_path, "unasked", "1.0.0", __init__="import lost\n")
    for name, requires in {"gradio": "starlette<2", "starlette": "gradio-client; python_version > '3'"}.items():
        metadata = next(tmp_path.glob(f"{name}-*")) / "METADATA"
        metadata.write_text(metadata.read_text().rstrip() + f"\nRequires-Dist: {requires}\n\n")
    assert [item["name"] for item in links(read(tmp_path))] == ["absent", "gradio_client.gone"]
    wheel = next(tmp_path.glob("gradio_client-*")) / "WHEEL"
    wheel.write_text("Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_17_x86_64\n")
    assert [item["name"] for item in links(read(tmp_path))] == ["gradio_client.gone"]


def test_what_stops_a_class_is_told_once_for_all_of_them(tmp_path: Path) -> None:
    trainer = "class Trainer:\n    def __init__(self, model=None): ...\n    def train(self):\n        self.step(1)\n"
    write(tmp_path, "transformers", "5.23.0", __init__=trainer + "    def step(self, a): ...\n")
    tuner = "from transformers import Trainer\nclass {}(Trainer):\n    def __init__(self):\n{}"
    write(
        tmp_path,
        "trl",
        "0.11.4",
        __init__="from .a import SFTTrainer\nfrom .b import DPOTrainer\n",
        a=tuner.format("SFTTrainer", "        if self.x:\n            super().__init__(tokenizer=1)\n"),
        b=tuner.format("DPOTrainer", "        super().__init__(tokenizer=1)\n    def step(self): ...\n"),
    )
    keyword, override = links(read(tmp_path))
    assert (keyword["kind"], keyword["name"], keyword["keyword"]) == ("keyword", "transformers.Trainer", "tokenizer")
    assert (keyword["stops"], keyword["reach"]) == ("trl.DPOTrainer, trl.SFTTrainer", "always")
    assert keyword["place"] == "trl/b:4"
    assert (override["kind"], override["name"], override["text"]) == ("override", "transformers.Trainer.step", "1")
    assert (override["parameters"], override["reach"], override["keyword"]) == ((), "always", ABSENT)


def test_metadata_without_code_starts_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "peft", "0.17.0")
    (tmp_path / "peft").rmdir()
    monkeypatch.delattr(observing("link"), "ask_once")
    assert links(read(tmp_path)) == Records(())


def test_what_would_fail_behind_it_is_told_of_other_packages_too(tmp_path: Path) -> None:
    write(tmp_path, "transformers", "5.23.0", __init__="")
    write(tmp_path, "huggingface_hub", "1.0", __init__="")
    utils = "from transformers import Lost\nfrom huggingface_hub import left\nset_seed = None\n"
    write(tmp_path, "accelerate", "1.15.0", __init__="from transformers import Gone\n", utils=utils)
    first, behind = links(read(tmp_path))
    assert first["name"] == "transformers.Gone" and first["stops"].startswith("import accelerate, ")
    assert (behind["name"], behind["stops"]) == ("huggingface_hub.left", "from accelerate.utils import set_seed")
