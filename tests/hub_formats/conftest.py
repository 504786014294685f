"""Where the tests of file formats find the model descriptions and the hostile files."""

from __future__ import annotations


# header_true is a module of this folder; other folders' tests reach it the same way.
