"""Which code of a repository transformers loads: the ``auto_map`` of its configurations."""

from collections.abc import Iterator, Mapping

#: Configurations whose auto_map transformers follows.
AUTO_MAP_FILES = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)


def entries(data: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """``auto_map`` of a configuration, and the classes of its custom pipelines: keys (``AutoModel``,
    ``AutoTokenizer.0``) with ``module.Class``, behind ``repository--`` where it is another one's."""
    for key, value in _table(data.get("auto_map")):
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, list):
            yield from ((f"{key}.{index}", entry) for index, entry in enumerate(value) if isinstance(entry, str))
    for task, pipeline in _table(data.get("custom_pipelines")):
        for key, value in _table(pipeline):
            if key == "impl" and isinstance(value, str):
                yield f"custom_pipelines.{task}", value


def _table(value: object) -> Iterator[tuple[str, object]]:
    # The oldest form of auto_map of a tokenizer is a list: [slow class, fast class].
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield "AutoTokenizer", value
