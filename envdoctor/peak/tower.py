"""What a tower for images holds beside the language model, by the sizes in ``vision_config`` and the patches of images.

The bytes of a patch are those of transformers' own towers (tests/peak/test_tower.py runs them). How many patches a
sample has is seldom told: no more than its tokens stand for, and of one picture no more than the largest has.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from envdoctor.peak.closed_form import OF_THE_MODEL
from envdoctor.peak.recipe import RunRecipe
from envdoctor.peak.sizes import tower_sizes
from envdoctor.peak.tracing import Job, Trace, TraceSource, changed

#: The bytes that a tower holds, in the terms of a trace.
IMAGES = "tower for images"
Row = Mapping[str, Any]


class Tower(NamedTuple):
    """Bytes of a patch, in half precision: what one layer keeps for the way back (``layer``), what ``every`` layer
    keeps where layers are computed again, and the most while one computes (``moment``). A token stands for so many
    ``patches``, a sample has at most the ``largest``. ``deaf``: whether its own code may not heed gradient
    checkpointing."""

    depth: int
    layer: float
    every: float
    moment: float
    patches: float
    largest: float
    deaf: bool

    def patches_of(self, tokens: int) -> float:
        """Return the most patches of images in a sample of so many tokens."""
        return min(self.patches * tokens, self.largest)

    def kept(self, checkpointing: bool) -> float:
        """Return the bytes of a patch that stay for the way back."""
        return self.depth * (self.every if checkpointing and not self.deaf else self.layer)


def tower_of(config: Row, recipe: RunRecipe) -> Tower | None:
    """Return the tower of a config.json, None if it tells none. The recipe may tell how large pictures are."""
    if (sizes := tower_sizes(config)) is None:
        return None
    depth, hidden, inner, patch = sizes
    rows = recipe.known["tower"]
    row = next((row for row in rows if config.get("model_type") in row["types"]), rows[-1])
    layer, moment = (row[name][0] * hidden + row[name][1] * inner for name in ("kept", "moment"))
    texts = [recipe.keys[row["key"]] for row in recipe.known["pixels"] if row["key"] in recipe.keys]
    number = next((int(text) for text in texts if text.isdecimal() and len(text) < 12), None)
    pixels = number or recipe.trainer.get("pixels")
    largest = pixels / patch**2 if pixels else row["largest"]
    return Tower(depth, layer, 2.0 * hidden, moment, row["patches"], largest, bool(row.get("own")))


def trained_tower(recipe: RunRecipe) -> bool:
    """Return whether the tower may be trained: unless a key of the recipe, or its framework where none does, says that
    it is frozen."""
    keys, rows = recipe.keys, recipe.known["frozen"]
    frozen = [keys[row["key"]].lower() == row["value"] for row in rows if row["key"] in keys]
    return not any(frozen or [recipe.trainer.get("frozen_tower", False)])


def with_images(source: TraceSource, tower: Tower, trained: bool) -> TraceSource:
    """Return the traces of ``source`` with images as large as the samples' lengths allow. The term grows with the
    length, so that it grows with the batch too."""

    def change(trace: Trace, job: Job) -> Trace:
        longest = max(job["tokens"])
        each = tower.patches_of(longest) / longest * job["batch"] * (2 if job["stage"] == "dpo" else 1)
        each *= 2 if job["load_dtype"] == "float32" else 1
        kept = tower.kept(job["checkpointing"]) if trained and job["training"] else 0.0
        points = []
        for point in trace.points:
            patches, segments = each * point["tokens"], dict[str, list[Any]]()
            for name, (size, operation, terms) in point["segments"].items():
                more = kept * patches if name.startswith(("forward", "backward")) else 0.0
                segments[name] = [size + more, operation, {**terms, IMAGES: more} if more else terms]
            for phase, own in (("forward", kept + tower.moment), ("backward", kept and kept + tower.layer)):
                ran = [terms for name, (*_, terms) in segments.items() if name.startswith(phase)]
                if own and ran:
                    new = {name: size for name, size in ran[-1].items() if name in OF_THE_MODEL}
                    new[IMAGES] = own * patches
                    segments[f"{phase}/images"] = [sum(new.values()), IMAGES, new]
            points.append({**point, "segments": segments})
        most = each * longest * max(kept + tower.moment, kept and kept + tower.layer)
        images = {"patches": tower.patches_of(longest), "image_bytes": most}
        return trace._replace(model={**trace.model, **images}, points=tuple(points))

    return changed(source, change)
