"""Which of the things that were found in a release the ledger has room for."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Mapping, Sequence

__all__ = ["selected"]

Sections = dict[str, dict[str, list[str]]]

_STANDARD = sys.stdlib_module_names | frozenset(typing.__all__)
_NOT_LISTED = "its names are not listed here"
_MODULES_NOT_LISTED = "not all modules of the package are listed here"


def selected(sections: Mapping[str, Mapping[str, Sequence[str]]], settings: Mapping[str, Sequence[str]]) -> Sections:
    """Return the sections without what ``[selection]`` of tools/harvest.toml leaves out.

    Below packages that are ``shallow`` those modules are listed that lie right below them, that have modules below
    themselves, or that are ``deep`` or below one that is; ``open`` says of ``package.*`` that there are others. Below
    ``compact`` packages (many of one kind) the names are not listed of those modules that have others below them. Of
    ``sparse`` top-level packages only the names of modules that have others below them are listed, and no parameters.
    Parameters of methods are kept of the top-level modules in ``methods``, none at all of ``uncalled`` modules and what
    is below them, how classes call their own of those in ``subclassed``; public places of what is defined elsewhere not
    of ``unaliased`` modules, nor of what is defined in ``uncalled`` ones. Of ``bare`` top-level packages it is said
    that they are there, and no more.
    """
    bare = frozenset(settings["bare"])
    found: Sections = {
        section: {k: list(v) for k, v in subjects.items() if re.split(r"[.:]", k)[0] not in bare}
        for section, subjects in sections.items()
    }
    for top in bare & sections["offers"].keys():
        found["offers"] = {top: [], **{k: v for k, v in found["offers"].items() if k != "*"}}
        found["open"] |= {top: [_NOT_LISTED], f"{top}.*": [_MODULES_NOT_LISTED]}
    offers, opened = found["offers"], found["open"]
    packages = {module.rpartition(".")[0] for module in offers}
    compact, deep, uncalled = (tuple(f"{one}." for one in settings[key]) for key in ("compact", "deep", "uncalled"))
    sparse = frozenset(settings["sparse"])
    for module in list(offers):
        top = module.partition(".")[0]
        if top in sparse and module not in packages and module != top:
            if module.count(".") > 1:
                del offers[module]
                opened.pop(module, None)
                opened[f"{top}.*"] = [_MODULES_NOT_LISTED]
            else:
                offers[module] = []
                opened[module] = [_NOT_LISTED]
            continue
        if module in packages and module.startswith(compact):
            offers[module] = []
            opened[module] = [_NOT_LISTED]
            continue
        above = next((one for one in settings["shallow"] if _is_two_below(module, one)), None)
        if above is not None and module not in packages and not f"{module}.".startswith(deep):
            del offers[module]
            opened.pop(module, None)
            opened[f"{above}.*"] = [_MODULES_NOT_LISTED]
    if any(module.partition(".")[0] in sparse for module in packages):
        # Packages are recorded with what they have of each other; nobody takes the rest from them but by mistake.
        offers["*"] = [name for name in offers.get("*", ()) if name in _STANDARD]
        found["alias"] = {}
    for subject in list(found["parameters"]):
        module, _, name = subject.partition(":")
        top = module.partition(".")[0]
        unkept = "." in name and top not in settings["methods"]
        if unkept or top in sparse or f"{module}.".startswith(uncalled):
            del found["parameters"][subject]
    for subject in list(found["calls"]):
        if subject.partition(":")[0].partition(".")[0] not in settings["subclassed"]:
            del found["calls"][subject]
    for subject, places in list(found["alias"].items()):
        is_uncalled = all(f"{place.partition(':')[0]}.".startswith(uncalled) for place in places)
        if is_uncalled or subject.partition(":")[0] in settings["unaliased"]:
            del found["alias"][subject]
    return found


def _is_two_below(module: str, package: str) -> bool:
    return module.startswith(f"{package}.") and "." in module[len(package) + 1 :]
