"""generation_config.json, preprocessors, the licence, and files of no other area."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparing import outcome
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


def kinds(compared: Compared) -> list[tuple[str, str]]:
    return [(change.kind, change.symbol) for change in compared.changes]


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


class TestGeneration:
    @pytest.fixture
    def compare(self, snapshot: Callable[..., Any]) -> Callable[..., Compared]:
        def run(old: Any, new: Any) -> Compared:
            sides = [snapshot({} if side is None else {"generation_config.json": side}) for side in (old, new)]
            return outcome(generation, *sides)

        return run

    def test_a_second_token_that_stops(self, compare: Any) -> None:
        compared = compare({"eos_token_id": 128001}, {"eos_token_id": [128001, 128009]})
        assert compared.changes == (
            Change("generation", "eos-changed", "generation_config.json", "eos_token_id", "128001", "[128001, 128009]"),
        )

    @pytest.mark.parametrize(
        ("key", "value", "kind"),
        [
            ("pad_token_id", 3, "token-id-changed"),
            ("temperature", 0.6, "sampling-default-changed"),
            ("own", 1, "key-changed"),
        ],
    )
    def test_a_key_has_the_kind_of_its_group(self, compare: Any, key: str, value: Any, kind: str) -> None:
        assert kinds(compare({key: 0}, {key: value})) == [(kind, key)]

    def test_a_default_that_is_written_out_is_implicit(self, compare: Any) -> None:
        compared = compare({}, {"do_sample": False, "top_k": 50})
        assert {kind for kind, _ in kinds(compared)} == {"implicit"}
        assert compared.equal == ("generation_config.json",)

    def test_a_file_that_came_or_went(self, compare: Any) -> None:
        assert kinds(compare(None, {})) == [("generation-added", "generation_config.json")]
        assert kinds(compare({}, None)) == [("generation-removed", "generation_config.json")]


class TestPreprocessor:
    @pytest.mark.parametrize(
        ("key", "before", "after", "kind"),
        [
            ("max_pixels", 12845056, 1003520, "size-changed"),
            ("image_mean", [0.5], [0.48], "normalisation-changed"),
            ("image_processor_type", "A", "AFast", "processor-class-changed"),
            ("sampling_rate", 16000, 24000, "audio-changed"),
            ("own", 1, 2, "key-changed"),
        ],
    )
    def test_a_key_has_the_kind_of_its_group(self, snapshot: Any, key: str, before: Any, after: Any, kind: str) -> None:
        sides = [snapshot({"preprocessor_config.json": {key: value}}) for value in (before, after)]
        assert kinds(outcome(preprocessor, *sides)) == [(kind, key)]

    def test_sizes_are_dotted(self, snapshot: Any) -> None:
        sides = [snapshot({"preprocessor_config.json": {"size": {"height": size}}}) for size in (224, 448)]
        assert kinds(outcome(preprocessor, *sides)) == [("size-changed", "size.height")]


class TestLicence:
    def readme(self, front: str) -> dict[str, str]:
        return {"README.md": f"---\n{front}\n---\n# Model\nlicense: not this one\n"}

    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            ("license: mit", "license: other", ("licence-field-changed", "mit", "other")),
            ("license: mit", 'license: "mit"', None),
            ("tags: [a]", "license: mit", ("licence-field-added", None, "mit")),
            ("license: mit", "tags: [a]", ("licence-field-removed", "mit", None)),
            ("license:\n- mit\n- other", "license: mit", ("licence-field-changed", "mit, other", "mit")),
        ],
    )
    def test_the_field_of_the_front_matter(
        self, snapshot: Any, before: str, after: str, expected: tuple[str, str | None, str | None] | None
    ) -> None:
        compared = outcome(licence, snapshot(self.readme(before)), snapshot(self.readme(after + " ")))
        assert [(c.kind, c.before, c.after) for c in compared.changes] == ([expected] if expected else [])

    def test_a_readme_without_front_matter_has_no_field(self, snapshot: Any) -> None:
        compared = outcome(licence, snapshot({"README.md": "a"}), snapshot({"README.md": "license: mit"}))
        assert compared == Compared(equal=("licence",))

    def test_blanks_and_line_ends_of_a_licence_are_no_change(self, snapshot: Any) -> None:
        assert not outcome(licence, snapshot({"LICENSE": "a  b\r\n"}), snapshot({"LICENSE": "a b\n"})).changes

    def test_another_text(self, snapshot: Any) -> None:
        compared = outcome(licence, snapshot({"LICENSE": "a"}), snapshot({"LICENSE": "b c"}))
        assert kinds(compared) == [("licence-text-changed", "LICENSE")]

    def test_added_and_removed(self, snapshot: Any) -> None:
        compared = outcome(licence, snapshot({"LICENSE": "a"}), snapshot({"MODEL_LICENSE": "a"}))
        assert kinds(compared) == [("licence-text-removed", "LICENSE"), ("licence-text-added", "MODEL_LICENSE")]

    def test_a_yaml_bomb_costs_nothing(self, snapshot: Any) -> None:
        bomb = "a: &a [x]\n" + "\n".join(f"b{n}: &b{n} [*a, *a]" for n in range(2000)) + "\nlicense: mit"
        compared = outcome(licence, snapshot(self.readme("license: apache-2.0")), snapshot(self.readme(bomb)))
        assert kinds(compared) == [("licence-field-changed", "license")]

    def test_an_unreadable_readme_is_unread(self, snapshot: Any) -> None:
        new = snapshot(self.readme("license: mit"), broken={"README.md": "cut"})
        assert outcome(licence, snapshot(self.readme("license: other")), new).unread == (("README.md", "cut"),)


class TestFiles:
    def test_added_removed_changed_and_documentation(self, snapshot: Any) -> None:
        old = snapshot({"a.gguf": "1", "b.gguf": "1", "demo.png": "1", "README.md": "x"})
        new = snapshot({"b.gguf": "22", "c.gguf": "1", "demo.png": "2", "README.md": "y"})
        compared = outcome(other_files, old, new)
        assert kinds(compared) == [
            ("file-removed", "a.gguf"),
            ("file-changed", "b.gguf"),
            ("file-added", "c.gguf"),
            ("documentation-changed", "demo.png"),
        ]
        assert old.reads == new.reads == []

    def test_equal_files_are_counted(self, snapshot: Any) -> None:
        sides = [snapshot({"a.gguf": "1"}) for _ in range(2)]
        assert outcome(other_files, *sides) == Compared(equal=("1 other files",))

    def test_a_file_that_was_not_hashed_is_read_when_only_that_can_tell(self, snapshot: Any) -> None:
        old = snapshot({"a.dat": "1"}, unhashed=["a.dat"])
        assert outcome(other_files, old, snapshot({"a.dat": "1"})).changes == ()
        assert kinds(outcome(other_files, old, snapshot({"a.dat": "2"}))) == [("file-changed", "a.dat")]

    def test_what_cannot_be_told_is_unread(self, snapshot: Any) -> None:
        old = snapshot({"a.dat": "1"}, unhashed=["a.dat"])
        new = snapshot({"a.dat": "1"}, broken={"a.dat": "gone"})
        assert outcome(other_files, old, new).unread == (("a.dat", "gone"),)

    def test_hostile_names_are_only_names(self, snapshot: Any) -> None:
        compared = outcome(other_files, snapshot({}), snapshot({"../../etc/passwd": "x", "a\x1b[31m": "y"}))
        assert [change.kind for change in compared.changes] == ["file-added", "file-added"]
