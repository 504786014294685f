"""What the code of a model uses: of the files that transformers loads, as the user's own code is read."""

from envdoctor.facts import Records

CONFIG = {"model_type": "tiny", "auto_map": {"AutoModel": "modeling_tiny.TinyModel", "AutoConfig": "org/else--far.C"}}
MODEL = """
from transformers.utils import is_torch_fx_available
from .configuration_tiny import TinyConfig

class TinyModel:
    def forward(self):
        import flash_attn
"""


def uses(disk, **files):
    folder = disk.folder("model", {"config.json": CONFIG, **{f"{name}.py": text for name, text in files.items()}})
    found = disk.facts(str(folder))["model_use"]
    assert isinstance(found, Records)
    return {(item["module"], item["reach"]): item for item in found}


def test_files_that_an_auto_map_names_and_those_that_they_import(disk):
    found = uses(disk, modeling_tiny=MODEL, configuration_tiny="import peft", convert="import trl", far="import trl")
    assert found.keys() == {("transformers.utils", "start"), ("flash_attn", "call"), ("peft", "start")}
    item = found["transformers.utils", "start"]
    assert item["name"] == "is_torch_fx_available"
    assert [place.rpartition("model/")[2] for place in item["place"]] == ["modeling_tiny.py:2"]


def test_files_in_a_circle_are_read_once(disk):
    found = uses(disk, modeling_tiny="from . import other\n", other="from .modeling_tiny import x\nimport peft\n")
    assert found.keys() == {("peft", "start")}


def test_a_model_without_auto_map_has_none(disk):
    folder = disk.folder("plain", {"config.json": {"model_type": "qwen2"}, "modeling_tiny.py": MODEL})
    assert disk.facts(str(folder))["model_use"] == Records(())
