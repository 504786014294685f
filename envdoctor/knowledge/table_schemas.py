"""What each table of the matrix holds: its parts, their columns, and which column tells two rows apart."""

from __future__ import annotations

import re
from collections.abc import Mapping

from envdoctor.facts.registry import TYPES
from envdoctor.knowledge.entry_statements import parse_statement
from envdoctor.knowledge.schema import (
    ANY,
    DATE,
    DOTTED,
    FLAG,
    NUMBER,
    RELEASES,
    SCHEMA_1,
    SOURCE,
    SPECIFIER,
    SYMPTOM,
    TEXT,
    TEXTS,
    VERSION,
    WORDS,
    Check,
    either,
    list_of,
    mapping,
    one_of,
    table,
    tables,
    text,
)
from envdoctor.versions.names import normalise

__all__ = ["PARTS", "document_schema"]

#: How a cell is known: read in the released file, said by its makers, said by users, concluded.
_LEVEL = one_of("observed", "declared", "reported", "inferred")
_PROOF = {"level": _LEVEL, "source": SOURCE}
_NAME = text("a normalised name of a package", lambda given: given == normalise(given))
_ANY_TEXT = text("a text", lambda given: True)
#: Texts in both languages.
_BOTH = table({"en": TEXT, "zh": TEXT})
_CC = text('a compute capability such as "8.6"', re.compile(r"\d{1,2}\.\d\Z").match)
_ARCH = text('an architecture such as "sm_90" or "compute_90"', re.compile(r"(sm|compute)_\d{2,3}[af]?\Z").match)
_STATEMENT = text("`import module` or `from module import name`", parse_statement)


def _is_bounded(pattern: str) -> bool:
    """A regular expression with the group ``value`` in which nothing repeats without end."""
    plain = re.sub(r"\[[^\]]*\]", "x", re.sub(r"\\.", "x", pattern))
    return "value" in re.compile(pattern).groupindex and not re.search(r"[*+]|,\}", plain)


_PATTERN = text("a regular expression with the group `value` and bounded repetition", _is_bounded)
_RELEASE_OR_RANGE = either(VERSION, SPECIFIER)
_GPU_KINDS = ("data-center", "workstation", "consumer", "embedded")


def _rows(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, key: str = "key") -> Check:
    """Rows with a level and a source each; a column that has its own names it in ``levels`` or ``sources``."""
    columns = {**required, **(optional or {})}
    own = {"levels": mapping(one_of(*columns), _LEVEL), "sources": mapping(one_of(*columns), SOURCE)}
    return tables(table({**required, **_PROOF}, {**(optional or {}), **own}), key.split())


_GPUS = {"key": TEXT, "names": TEXTS, "cc": _CC, "kind": one_of(*_GPU_KINDS)}
_COMPAT = table({"kinds": list_of(one_of(*_GPU_KINDS)), "names": TEXTS})
_ARCHS = {"key": _RELEASE_OR_RANGE, "cuda": DOTTED, "archs": list_of(_ARCH)}
_GLOBALS = table({**_PROOF, "names": mapping(TEXT, TEXTS)})
_TAKEN = table({"by": _NAME, "name": TEXT}, {"through": TEXTS})
_SPAN = {"releases": RELEASES}
_WHEELS = table({"torch": DOTTED, "cuda": list_of(DOTTED), "python": list_of(DOTTED), "machine": TEXTS})
_MEANING = either(TEXT, table({"field": TEXT}, {"words": mapping(_ANY_TEXT, _ANY_TEXT), "add": FLAG}))
_KNOWN = {
    "id": TEXT,
    "title": _BOTH,
    "why": _BOTH,
    "fix": _BOTH,
    "source": SOURCE,
    "checked": DATE,
    "symptom": tables(SYMPTOM),
}
_NEW = {"new": TEXT, "new_package": _NAME, "new_releases": RELEASES, "write": WORDS}

#: By table: its parts beside the head, each with its check.
PARTS: Mapping[str, Mapping[str, Check]] = {
    "config-defaults": {
        "defaults": mapping(TEXT, mapping(TEXT, ANY)),
        "generation": mapping(TEXT, ANY),
        "tokenizer": mapping(TEXT, ANY),
    },
    "config-keys": {
        "alias": tables(table({"key": TEXT, "names": TEXTS, "source": SOURCE}), ["key"]),
        "kind": tables(table({"kind": TEXT, "keys": TEXTS}, {"area": TEXT})),
    },
    "cuda-compilers": {"row": _rows({"key": DOTTED, "max_gcc": DOTTED})},
    "cuda-drivers": {
        "row": _rows({"key": DOTTED}, {"linux": DOTTED, "windows": DOTTED, "oldest_cc": _CC, "newest_cc": _CC}),
        "family": _rows({"major": DOTTED, "linux": DOTTED, "windows": DOTTED}, key="major"),
        "forward": table({**_PROOF, "allowed": _COMPAT, "refused": _COMPAT}),
        "numbering": table({"since": DOTTED}),
    },
    "cuda-wheels": {"component": _rows({"name": _NAME}, key="name")},
    "cxx-standards": {"row": _rows({"key": RELEASES, "cxx_standard": NUMBER, "gcc": DOTTED})},
    "entry-statements": {
        "row": _rows(
            {"name": _NAME, "statements": list_of(_STATEMENT)},
            {"versions": SPECIFIER, "beside": list_of(_NAME), "needs_gpu": FLAG, "derives": FLAG},
            key="name versions beside",
        )
    },
    "gpu-code": {
        "row": _rows({"key": _CC}, {"except": list_of(_CC), "only": list_of(_CC), "until_cuda": DOTTED}),
        "ptx": table({**_PROOF, "since": _CC}),
    },
    "gpu-series": {"row": _rows(_GPUS)},
    "gpus": {"row": _rows({**_GPUS, "memory_gb": list_of(NUMBER)})},
    "images": {
        "row": _rows({"image": TEXT, "tag": TEXT, "facts": mapping(TEXT, TEXT)}, key="image tag"),
    },
    "import-needs": {
        "row": _rows(
            {"name": _NAME, "versions": SPECIFIER},
            {"missing": list_of(_NAME), "refuses": list_of(_NAME), "below": mapping(_NAME, VERSION)},
            key="name versions",
        )
    },
    "moved-names": {
        "name": _rows({"old": TEXTS, "package": _NAME, **_SPAN}, _NEW, key="old"),
        "keyword": _rows({"of": TEXTS, "old": TEXTS, "package": _NAME, **_SPAN}, _NEW, key="of old"),
        "member": _rows({"of": TEXTS, "old": TEXTS, "package": _NAME, **_SPAN}, _NEW, key="of old"),
        "kept": _rows({"of": TEXTS, "old": TEXTS, "package": _NAME, "by": _NAME, **_SPAN}, key="of old by"),
    },
    "memory-forms": {
        "measured": table({"margin": NUMBER}),
        "drift": mapping(TEXT, NUMBER),
        "model": tables(
            table(
                {
                    **{"key": TEXT, "tied": FLAG, "attention": TEXT, "least": TEXTS},
                    "modules": mapping(TEXT, TEXTS),
                    **{"linear": TEXT, "rest": TEXT},
                },
                {"qkv": TEXTS},
            ),
            ["key"],
        ),
        "form": tables(
            table({"releases": TEXTS, "jobs": TEXTS, "segment": TEXT, "operation": TEXT, "terms": mapping(TEXT, TEXT)})
        ),
    },
    "native-types": {
        "row": _rows(
            {
                "key": TEXT,
                "type": TEXT,
                "names": mapping(TEXT, TEXT),
                "needs": mapping(TEXT, ANY),
                "modules": mapping(TEXT, TEXTS),
                "targets": TEXTS,
                **{"modeling": TEXT, "ignores": TEXT, "but_in": TEXTS},
            }
        )
    },
    "numpy-2-builds": {"package": _rows({"name": _NAME, "first": VERSION, "last": VERSION}, key="name")},
    "packages": {
        "package": tables(
            table({"name": _NAME, "source": SOURCE}, {"conda": TEXT, "conda_forge": FLAG, "wheel_index": SOURCE}),
            ["name"],
        )
    },
    "pickle-globals": {"safe": _GLOBALS, "runs-code": _GLOBALS},
    "recipe-calls": {
        "row": _rows({"framework": TEXT, "call": TEXT}, {"stage": TEXT, "others": TEXTS}, key="framework stage")
    },
    "recipe-formats": {
        "format": _rows(
            {"name": _NAME, "title": TEXT, "keys": mapping(TEXT, either(_MEANING, list_of(_MEANING)))},
            {
                **dict.fromkeys(("framework", "call", "lenient"), TEXT),
                **dict.fromkeys(("files", "marked_only", "auto", "yaml_text"), FLAG),
                "keys_decide": one_of("most", "all"),
                **dict.fromkeys(("marks", "unused"), TEXTS),
                **dict.fromkeys(("says", "includes", "reference"), mapping(_ANY_TEXT, TEXT)),
                **dict.fromkeys(("authority", "length_extra"), NUMBER),
                "names": mapping(TEXT, mapping(TEXT, TEXT)),
                "defaults": mapping(TEXT, ANY),
                "versioned": tables(table({"field": TEXT, "value": TEXT, "package": _NAME, "releases": SPECIFIER})),
                "implied": tables(table({"field": TEXT, "value": TEXT, "by": TEXT, "words": TEXTS})),
            },
            key="name",
        )
    },
    "releases": {"releases": mapping(_NAME, list_of(VERSION))},
    "safetensors-dtypes": {"row": _rows({"key": TEXT, "since": VERSION})},
    "stack-modules": {
        "module": _rows({"module": TEXT, "name": _NAME}, {"taken": list_of(_TAKEN)}, key="module"),
    },
    "torch-archs": {"row": _rows({**_ARCHS, "machine": one_of("x86_64", "aarch64")}, key="key cuda machine")},
    "torch-archs-windows": {"row": _rows(_ARCHS, key="key cuda")},
    "torch-builds": {
        "row": _rows(
            {
                "key": VERSION,
                "python": SPECIFIER,
                "python_aarch64": SPECIFIER,
                "cuda": list_of(DOTTED),
                "pypi_cuda": DOTTED,
                "pypi_cuda_aarch64": either(one_of("absent"), DOTTED),
                "torchvision": VERSION,
                "torchaudio": VERSION,
            },
            {"open": list_of(one_of("cuda"))},
        )
    },
    "torch-companions": {"package": _rows({"name": _NAME}, {"newer_since": VERSION}, key="name")},
    "torch-extensions": {
        "package": _rows({"name": _NAME, "modules": TEXTS}, {"vital": mapping(TEXT, TEXT)}, key="name"),
    },
    "torch-wheels": {
        "row": _rows({"package": _NAME, "versions": SPECIFIER, "builds": tables(_WHEELS)}, key="package versions"),
    },
    "transformers-demands": {
        "call": _rows({"name": TEXT, **_SPAN}, {"keyword": TEXT}, key="name keyword"),
        "method": _rows({"name": TEXT, "class": TEXT, "lacks": TEXT, **_SPAN}, key="name class"),
        "config": _rows({"file": TEXT, "key": TEXT, **_SPAN}, {"values": TEXTS, "without": TEXT}, key="file key"),
    },
    "transformers-model-types": {
        "since": mapping(VERSION, TEXTS),
        "until": mapping(VERSION, TEXTS),
        "never": table({"names": TEXTS}),
    },
    "framework-models": dict.fromkeys(
        ("vllm", "sglang", "llamafactory", "unsloth"),
        table({"since": mapping(VERSION, TEXTS), "until": mapping(VERSION, TEXTS)}, {"fallback": VERSION}),
    ),
    "report-forms": {
        "package": tables(table({"name": _NAME, "also": TEXTS}), ["name"]),
        "label": tables(table({"labels": TEXTS, "fact": TEXT, "values": _PATTERN}, {"absent": TEXTS, "quiet": FLAG})),
        "line": tables(
            table(
                {"pattern": _PATTERN},
                {"has": TEXT, "fact": TEXT, "loose": FLAG, "table": FLAG, "known": FLAG, "each": FLAG},
            )
        ),
        "system": tables(table({"platform": TEXT, "words": TEXTS}), ["platform"]),
        "prose": table({"allowed": TEXTS, "doubt": TEXTS}),
    },
    "ordinary-log": {"log": table({"lines": TEXTS})},
    "known-errors": {"error": tables(table(_KNOWN), ["id"])},
    "module-distributions": {"row": _rows({"module": TEXT, "name": _NAME}, key="module")},
    "run-needs": {
        "row": _rows({"key": TEXT, "asks": TEXTS}, {"when": mapping(TEXT, ANY), "built": FLAG, "others": TEXTS})
    },
    "withdrawn-releases": {
        "release": _rows(
            {"package": _NAME, "version": VERSION, "harm": FLAG, "reason": TEXT, "instead": VERSION},
            key="package version",
        )
    },
}

_HEAD = table({"title": TEXT, "as_of": DATE, "source_note": TEXT}, {"covers": TEXT})

_FACT = {"type": one_of(*TYPES), "meaning": TEXT}
_OF_ANY_FACT = {
    "privacy": one_of("public", "path", "host"),
    "depends_on": TEXTS,
    "concerns": mapping(TEXT, TEXTS),
    "label": WORDS,
    "absent": WORDS,
    "values": either(TEXTS, mapping(TEXT, table({}, {"en": TEXT, "zh": TEXT}))),
    "answer": FLAG,
    "spellings": mapping(TEXT, TEXTS),
    "only_said": TEXTS,
    "least": NUMBER,
    "most": NUMBER,
    "example": either(TEXT, NUMBER),
}
_OTHERS: Mapping[str, Check] = {
    "facts": table(
        {
            "schema": SCHEMA_1,
            "help": mapping(
                TEXT,
                table(
                    {"en": TEXT},
                    {
                        "zh": TEXT,
                        "asks": WORDS,
                        "given_with": TEXT,
                        "part_of": TEXTS,
                        "keys": TEXTS,
                        "beside": mapping(TEXT, TEXT),
                    },
                ),
            ),
            "fact": mapping(
                TEXT,
                table(
                    {**_FACT, "help": TEXT},
                    {
                        **_OF_ANY_FACT,
                        "identity": TEXTS,
                        "edit": TEXT,
                        "first": TEXTS,
                        "columns": mapping(TEXT, table(_FACT, _OF_ANY_FACT)),
                        "names": table({}, dict.fromkeys(("public", "path", "host"), TEXTS)),
                    },
                ),
            ),
        }
    ),
    "families": table(
        {
            "schema": SCHEMA_1,
            "organisations": mapping(TEXT, TEXT),
            "copies": table({"organisations": TEXTS, "endings": TEXTS}),
            "family": tables(
                table(
                    dict.fromkeys(("repos", "types", "architectures"), TEXTS)
                    | {"id": TEXT, "title": TEXT, "source": SOURCE},
                    {
                        "shared_types": TEXTS,
                        "except": TEXTS,
                        "known": tables(table({"repos": TEXTS, "facts": mapping(TEXT, ANY)}, {"source": SOURCE})),
                    },
                ),
                ["id"],
            ),
        }
    ),
    "retired": table(
        {"schema": SCHEMA_1, "retired": mapping(TEXT, table({"date": DATE, "because": TEXT}, {"now": TEXT}))}
    ),
}


def document_schema(name: str) -> Check | None:
    """The check of a file beside the rules, by the file's stem; None when no such table is known."""
    if name in PARTS:
        return table({"schema": SCHEMA_1, "table": _HEAD, **PARTS[name]})
    return _OTHERS.get(name)
