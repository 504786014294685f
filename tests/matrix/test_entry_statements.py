"""What people import of the installed packages, by their versions."""

from envdoctor.matrix import EntryStatement, entries, load_matrix


def statements(**installed):
    return [entry.statement for entry in entries(load_matrix().rows, installed)]


def test_a_statement_gives_its_package_module_and_name():
    found = {entry.statement: entry for entry in entries(load_matrix().rows, {"trl": "1.16.0", "peft": "0.17.0"})}
    asked = EntryStatement("from trl import SFTTrainer", "trl", "trl", "SFTTrainer", needs_gpu=False, derives=True)
    assert found["from trl import SFTTrainer"] == asked
    assert found["import peft"] == EntryStatement("import peft", "peft", "peft", None, needs_gpu=False, derives=True)


def test_names_of_later_releases_are_not_asked_of_earlier_ones():
    assert "from trl import GRPOTrainer" in statements(trl="0.14.0")
    assert "from trl import GRPOTrainer" not in statements(trl="0.13.0")


def test_a_package_that_is_not_installed_is_not_asked():
    assert statements(numpy="2.4.6") == ["import numpy"]


def test_a_version_that_is_none_leaves_the_names_of_every_release():
    names = ("LoraConfig", "get_peft_model", "PeftModel")
    assert statements(peft="unknown") == ["import peft", *(f"from peft import {name}" for name in names)]
