"""Code that runs when Python starts and may put anything in front of the packages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.locate.startup import LONGEST, touches

#: Forms that are met everywhere, without their blanks: what ``setup.py develop`` writes, the ``-nspkg.pth`` of
#: namespace packages, setuptools' distutils.
_HARMLESS = (
    r"importsys;sys\.__plen=len\(sys\.path\)|"
    r"importsys;new=sys\.path\[sys\.__plen:\];delsys\.path\[sys\.__plen:\];p=getattr\(sys,'__egginsert',0\);"
    r"sys\.path\[p:p\]=new;sys\.__egginsert=p\+len\(new\);?|"
    r"importsys,types,os;(?:has_mfs=sys\.version_info>\(3,5\);)?p=os\.path\.join\(sys\._getframe\(1\)\.f_locals\['sitedir'\],"
    r"\*\((?:'\w+',?)+\)\);[^#]{0,600}\(pnotinmp\)andmp\.append\(p\);?|"
    r"importos;var='SETUPTOOLS_USE_DISTUTILS';enabled=os\.environ\.get\(var,'(?:local|stdlib)'\)=='local';"
    r"enabledand__import__\('_distutils_hack'\)\.add_shim\(\);?"
)
#: Modules that write no list, by how they begin: virtualenv's, uv's.
_HARMLESS_MODULES = {"_virtualenv": '"""Patches that are applied at runtime to the virtual environment."""'}


def not_understood(layout: Layout, unlisted: Callable[[list[str]], list[str]]) -> Iterator[str]:
    """The files whose code may change where modules come from, in a way that cannot be told. What an installed
    distribution brings (``unlisted`` gives the names that none lists) is its own affair."""
    for startup in layout.startup:
        if re.fullmatch(_HARMLESS, re.sub(r"\s+", "", startup.code)) or not _lists_none(startup.file, layout, unlisted):
            continue
        if not startup.known or any(_may_change(module, layout, unlisted) for module in startup.imports):
            yield startup.file


def _lists_none(file: str, layout: Layout, unlisted: Callable[[list[str]], list[str]]) -> bool:
    folders = [one for one in layout.site_packages if file.startswith(one + os.sep)]
    names = [os.path.relpath(file, folder).replace(os.sep, "/") for folder in folders]
    return all(unlisted([f"{name},"]) for name in names)


def _may_change(module: str, layout: Layout, unlisted: Callable[[list[str]], list[str]]) -> bool:
    """Whether the module lies in the environment, comes from no distribution, and touches the import path."""
    files = layout.files
    for folder in layout.site_packages:
        names = files.names_or_none(folder)
        stem = os.path.join(folder, module)
        path = os.path.join(stem, "__init__.py") if module in names else f"{stem}.py"
        if not files.is_file(path):
            continue
        if not _lists_none(path, layout, unlisted):
            return False
        text = files.text_or_empty(path, LONGEST)
        return touches(text) and not text.startswith(_HARMLESS_MODULES.get(module, "\0"))
    return False
