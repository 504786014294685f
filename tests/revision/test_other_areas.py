"""generation_config.json, preprocessors, the licence, and files of no other area."""

from typing import Any

import pytest
from comparing import holds, outcome
from header_true import Repository
from rooms import comparer

from envdoctor.revision import Change, Compared, files_of

remote_code = comparer("remote_code")
licence = comparer("licence")
other_files = comparer("other_files")
config = comparer("config")
generation = comparer("generation")
preprocessor = comparer("preprocessor")
chat_template = comparer("chat_template")
tokenizer_files = comparer("tokenizer_files")
tensors = comparer("tensors")


@pytest.mark.parametrize(
    ("path", "comparer"),
    [
        ("model-00001-of-00007.safetensors", tensors),
        ("model.safetensors.index.json", tensors),
        ("pytorch_model.bin", tensors),
        ("modeling_chatglm.py", remote_code),
        ("config.json", config),
        ("unet/config.json", config),
        ("adapter_config.json", config),
        ("generation_config.json", generation),
        ("tokenizer.model", tokenizer_files),
        ("qwen.tiktoken", tokenizer_files),
        ("chat_template.jinja", chat_template),
        ("additional_chat_templates/tool_use.jinja", chat_template),
        ("video_preprocessor_config.json", preprocessor),
        ("MODEL_LICENSE", licence),
        ("LICENSE.txt", licence),
        ("README.md", licence),
        ("docs/README.md", other_files),
        ("model.gguf", other_files),
        ("other.jinja", other_files),
    ],
)
def test_every_file_is_compared_and_only_what_nobody_wants_as_another_file(path: str, comparer: Any) -> None:
    assert files_of(comparer, [path]) == (path,)
    assert (files_of(other_files, [path]) == (path,)) is (comparer is other_files)


GENERATION, PREPROCESSOR = "generation_config.json", "preprocessor_config.json"


@pytest.mark.parametrize(
    ("area", "file", "key", "before", "after", "kind"),
    [
        (generation, GENERATION, "pad_token_id", 0, 3, "token-id-changed"),
        (generation, GENERATION, "temperature", 0, 0.6, "sampling-default-changed"),
        (generation, GENERATION, "own", 0, 1, "key-changed"),
        (preprocessor, PREPROCESSOR, "max_pixels", 12845056, 1003520, "size-changed"),
        (preprocessor, PREPROCESSOR, "image_mean", [0.5], [0.48], "normalisation-changed"),
        (preprocessor, PREPROCESSOR, "image_processor_type", "A", "AFast", "processor-class-changed"),
        (preprocessor, PREPROCESSOR, "sampling_rate", 16000, 24000, "audio-changed"),
        (preprocessor, PREPROCESSOR, "own", 1, 2, "key-changed"),
    ],
)
def test_a_key_has_the_kind_of_its_group(area: Any, file: str, key: str, before: Any, after: Any, kind: str) -> None:
    holds(outcome(area, {file: {key: before}}, {file: {key: after}}), f"{kind} {key}")


def test_what_a_generation_configuration_changes() -> None:
    old, new = {GENERATION: {"eos_token_id": 128001}}, {GENERATION: {"eos_token_id": [128001, 128009]}}
    change = Change("generation", "eos-changed", GENERATION, "eos_token_id", "128001", "[128001, 128009]")
    assert outcome(generation, old, new).changes == (change,)
    implicit = outcome(generation, {GENERATION: {}}, {GENERATION: {"do_sample": False, "top_k": 50}})
    holds(implicit, "implicit do_sample", "implicit top_k")
    assert implicit.equal == (GENERATION,)
    holds(outcome(generation, {}, {GENERATION: {}}), f"generation-added {GENERATION}")
    holds(outcome(generation, {GENERATION: {}}, {}), f"generation-removed {GENERATION}")


def test_sizes_of_a_preprocessor_are_dotted() -> None:
    sides = ({PREPROCESSOR: {"size": {"height": size}}} for size in (224, 448))
    holds(outcome(preprocessor, *sides), "size-changed size.height")


YAML_BOMB = "a: &a [x]\n" + "\n".join(f"b{n}: &b{n} [*a, *a]" for n in range(2000)) + "\nlicense: mit"


def readme(front: str) -> dict[str, str]:
    return {"README.md": f"---\n{front}\n---\n# Model\nlicense: not this one\n"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("license: mit", "license: other", ["licence-field-changed license: mit -> other"]),
        ("license: mit", 'license: "mit"', []),
        ("tags: [a]", "license: mit", ["licence-field-added license: None -> mit"]),
        ("license: mit", "tags: [a]", ["licence-field-removed license: mit -> None"]),
        ("license:\n- mit\n- other", "license: mit", ["licence-field-changed license: mit, other -> mit"]),
        ("license: apache-2.0", YAML_BOMB, ["licence-field-changed license"]),
    ],
)
def test_the_field_of_the_front_matter(before: str, after: str, expected: list[str]) -> None:
    holds(outcome(licence, readme(before), readme(after + " ")), *expected)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"license": "mit"}, {"license": ["other", "mit", {}]}, "licence-field-changed license: mit -> other, mit"),
        ({"license": "mit"}, {}, "licence-field-removed license: mit -> None"),
        ({"tags": ["x"]}, {"license": {"a": 1}, "license_name": 3}, ""),
        ({}, {}, "licence-field-changed license: x -> y"),  # nothing says that the list would give it
        ({"license": "mit"}, None, "licence-field-changed license: x -> y"),  # a folder
    ],
)
def test_the_field_is_taken_from_two_lists_that_give_it(before: Any, after: Any, expected: str) -> None:
    old, new = (Repository(texts=readme(f"license: {name}")) for name in "xy")
    old.card, new.card = before, after
    holds(outcome(licence, old, new), *filter(None, [expected]))
    assert len(old.read_paths) == ("x -> y" in expected)


def test_licences_are_compared_by_their_texts() -> None:
    no_field = outcome(licence, {"README.md": "a"}, {"README.md": "license: mit"})
    assert no_field == Compared(equal=("licence",))
    holds(outcome(licence, {"LICENSE": "a  b\r\n"}, {"LICENSE": "a b\n"}))
    holds(outcome(licence, {"LICENSE": "a"}, {"LICENSE": "b c"}), "licence-text-changed LICENSE")
    added = "licence-text-added MODEL_LICENSE"
    holds(outcome(licence, {"LICENSE": "a"}, {"MODEL_LICENSE": "a"}), "licence-text-removed LICENSE", added)


def test_beyond_twenty_texts_of_licences_the_rest_is_said_to_be_unread() -> None:
    old, new = ({f"LICENSE.{number:02}": text for number in range(21)} for text in "ab")
    compared = outcome(licence, old, new)
    assert (len(compared.changes), [part.path for part in compared.unread]) == (20, ["LICENSE.20"])


@pytest.mark.parametrize(
    ("area", "old", "new", "path"),
    [
        (licence, Repository(texts=readme("license: other")), readme("license: mit"), "README.md"),
        (other_files, Repository(texts={"a.dat": "1"}, unhashed=["a.dat"]), {"a.dat": "1"}, "a.dat"),
    ],
)
def test_what_cannot_be_read_is_unread(area: Any, old: Repository, new: Any, path: str) -> None:
    assert outcome(area, old, Repository(texts=new, broken={path: "cut"})).unread == ((path, "cut"),)


def test_other_files_are_told_apart_by_their_object_ids() -> None:
    old = Repository(texts={"a.gguf": "1", "b.gguf": "1", "demo.png": "1", "README.md": "x"})
    new = Repository(texts={"b.gguf": "22", "c.gguf": "1", "demo.png": "2", "README.md": "y"})
    expected = ("file-removed a.gguf", "file-changed b.gguf", "file-added c.gguf", "documentation-changed demo.png")
    holds(outcome(other_files, old, new), *expected)
    assert old.read_paths == new.read_paths == []
    unhashed = Repository(texts={"a.dat": "1"}, unhashed=["a.dat"])
    holds(outcome(other_files, unhashed, {"a.dat": "1"}))
    holds(outcome(other_files, unhashed, {"a.dat": "2"}), "file-changed a.dat")
    sides = ({"modeling.py": "build('kernels.cu')", "kernels.cu": number} for number in "12")
    holds(outcome(other_files, *sides), "file-read-by-code kernels.cu")
    hostile = {"../../etc/passwd": "x", "a\x1b[31m": "y"}
    holds(outcome(other_files, {}, hostile), "file-added", "file-added")
