"""The fact ``extension``: what the compiled files of packages built against torch need, and whether this torch has it.

One item a package, because one wrong build is one cause however many files it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envdoctor.facts.values import ABSENT, Absent, Fact, Records, Unknown, Value
from envdoctor.observe.binaries.reading.built_for import built_for
from envdoctor.observe.binaries.reading.extension_files import compiled_files, python_tag
from envdoctor.observe.binaries.reading.torch_libraries import find_torch_libraries
from envdoctor.observe.locate.layout import Layout
from envdoctor.text.files import Files

__all__ = ["read_extensions"]

_COLUMNS = ("problem", "arch", "glibc_needs", "glibcxx_needs", "unresolved", "example", "missing_library")
_Chosen = list[tuple[Mapping[str, Value], list[tuple[str, str]]]]


def read_extensions(
    dists: Mapping[str, Mapping[str, Value]],
    modules: Mapping[str, Sequence[str]],
    layout: Layout,
    missing: Value | None,
    incomplete: str | None,
) -> Fact:
    """The fact for these distributions (items of ``dist`` by name). Never raises for what a file holds.

    ``modules`` are those of the table, ``missing`` is ``torch.missing_files``, and ``incomplete`` why distributions may
    be missing from ``dists``.
    """
    why = incomplete
    chosen: _Chosen = []
    for name, dist in dists.items():
        found, partly = compiled_files(
            str(dist.get("path")), str(dist.get("kind")), modules[name], layout.site_packages, layout.files
        )
        why = why or partly
        if found:
            chosen.append((dist, found))
    items, unread = _checked(chosen, layout, missing) if chosen else ([], None)
    records = tuple(
        _item(dist, found, columns or {}, layout.files)
        for (dist, found), columns in zip(chosen, items, strict=True)
        if columns is not None or any(python_tag(name) for _, name in found)
    )
    return Fact("extension", Records(records, why or unread), "compiled files", "environment")


def _checked(
    chosen: _Chosen, layout: Layout, missing: Value | None
) -> tuple[list[dict[str, Value] | None], str | None]:
    """What the compiled files tell."""
    from envdoctor.observe.binaries.reading.extension_check import check_extensions

    torch = find_torch_libraries(layout, missing)
    return check_extensions([found for _, found in chosen], torch, layout.files)


def _item(
    dist: Mapping[str, Value], found: Sequence[tuple[str, str]], columns: Mapping[str, Value], files: Files
) -> dict[str, Value]:
    name, version = str(dist.get("name")), dist.get("version", Unknown("not known"))
    item: dict[str, Value] = {
        "package": name,
        "version": version,
        "python_tag": ", ".join(sorted({tag for _, file in found if (tag := python_tag(file))})) or ABSENT,
        **dict.fromkeys(_COLUMNS, ABSENT),
        **columns,
    }
    said = built_for(name, version if isinstance(version, str) else "", str(dist.get("path")), files)
    linked = item.get("built_cuda", ABSENT)
    item["built_torch"] = said.torch or ABSENT
    item["built_says"] = said.says or ABSENT
    # What a file is linked to is what the loader asks for; the text tells the minor version too.
    if said.cuda and (not isinstance(linked, str) or said.cuda.partition(".")[0] == linked):
        item["built_cuda"] = said.cuda
    elif isinstance(linked, str):
        item["built_says"] = said.says or f"libcudart.so.{linked} in its compiled files"
    else:
        item["built_cuda"] = ABSENT if isinstance(linked, Absent) else linked
    return item
