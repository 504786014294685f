"""Looking up which transformers releases have a name, a module or a model type."""

from __future__ import annotations

from envdoctor.knowledge.matrix import Matrix

__all__ = ["TransformersNames"]

_SYMBOLS, _TYPES = "transformers-symbols", "transformers-model-types"


class TransformersNames:
    """The tables transformers-symbols and transformers-model-types. Releases are texts such as ``>=4.36,<5.0``.

    ``calls``, ``methods`` and ``config`` are rows of the former.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.calls, self.methods, self.config = (matrix.rows(_SYMBOLS, part) for part in ("call", "method", "config"))
        self._modules: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for module in matrix.rows(_SYMBOLS, "module"):
            self._modules[module["name"]] = module.get("releases", "")
            for releases, names in module.get("names", {}).items():
                for name in names:
                    self._names[f"{module['name']}.{name}"] = releases
        self._since, self._until = (
            {name: version for version, names in matrix.part(_TYPES, part).items() for name in names}
            for part in ("since", "until")
        )
        covers = str(matrix.part(_TYPES, "table").get("covers", ""))
        self._oldest = covers.partition(",")[0].removeprefix(">=")

    def releases_of_name(self, name: str) -> str | None:
        """Releases in which ``transformers.cache_utils.HybridCache`` can be imported; None when nothing is known.

        A name of a module that only some releases have is in those at most.
        """
        if name in self._names:
            return self._names[name]
        while name:
            if name in self._modules:
                return self._modules[name] or None
            name = name.rpartition(".")[0]
        return None

    def releases_of_type(self, model_type: str) -> str | None:
        """Releases that register a model type; an empty text for all, None for a type that no table row has."""
        since = self._since.get(model_type)
        if since is None:
            return None
        # 4.26.0 is where the table begins: the type may be older.
        low = "" if since.startswith(f"{self._oldest}.") and since.endswith(".0") else f">={since}"
        until = self._until.get(model_type)
        return ",".join(part for part in (low, f"<{until}" if until else "") if part)
