"""Which area of the comparison a file of a model repository belongs to."""

from __future__ import annotations

import posixpath

__all__ = ["ADAPTER_CONFIG", "TEMPLATE_FOLDER", "VOCABULARY_FILES", "area_of"]

ADAPTER_CONFIG = "adapter_config.json"
#: Named chat templates are saved in this folder, one ``<name>.jinja`` each.
TEMPLATE_FOLDER = "additional_chat_templates/"
_CONFIG = ("config.json", ADAPTER_CONFIG)
_TOKENIZER = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")
#: Vocabularies and merges that are no JSON document of the tokenizers library.
VOCABULARY_FILES = (
    *("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "spm.model"),
    *("vocab.json", "vocab.txt", "merges.txt", "ice_text.model", "tekken.json"),
)
_PREPROCESSOR = (
    *("preprocessor_config.json", "processor_config.json", "image_processor_config.json"),
    *("video_preprocessor_config.json", "feature_extractor_config.json"),
)
_TEMPLATE = ("chat_template.jinja", "chat_template.json")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_WEIGHT_INDEX = (".safetensors.index.json", ".bin.index.json")
_LICENCE = ("licen", "copying", "notice", "use_policy", "usage_policy")


def area_of(path: str) -> str:
    """The area (one of :data:`envdoctor.revision.change.AREAS`) that compares this file; ``files`` for the rest.

    README.md is in ``licence``, the one thing of it that is compared; ``tokenizer_config.json`` is in ``tokenizer``,
    although the template area reads it too.
    """
    name = posixpath.basename(path).lower()
    if name.endswith(_WEIGHT_INDEX) or name.endswith(_WEIGHTS):
        return "weights"
    if name.endswith(".py"):
        return "code"
    if name in _CONFIG:
        return "config"
    if name == "generation_config.json":
        return "generation"
    if name in _TOKENIZER or name in VOCABULARY_FILES or name.endswith(".tiktoken"):
        return "tokenizer"
    if name in _TEMPLATE or (path.startswith(TEMPLATE_FOLDER) and name.endswith(".jinja")):
        return "template"
    if name in _PREPROCESSOR:
        return "preprocessor"
    if path == "README.md" or any(word in name for word in _LICENCE):
        return "licence"
    return "files"
