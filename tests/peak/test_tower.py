"""What a tower for images holds, beside transformers' own towers as they run, and what it does to a prediction."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from observing import shipped
from tables import rows
from traced_jobs import JOB, LORA, MadeUp

from envdoctor.facts import Fact, FactSet, Records
from envdoctor.peak import IMAGES, Tower, Trace, recipe_of, tower_of, trained_tower, with_images

MIB = 1 << 20
KNOWN = shipped().table("memory-frameworks")
#: By the type of the model: the module, the class of the tower and of its configuration, the sizes by their names
#: there, and the patches of two pictures in the tower's own words.
TOWERS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "qwen2_vl": ("qwen2_vl", "Qwen2VisionTransformerPretrainedModel", "Qwen2VLVisionConfig", {"hidden_size": 64}),
    "qwen2_5_vl": (
        "qwen2_5_vl",
        "Qwen2_5_VisionTransformerPretrainedModel",
        "Qwen2_5_VLVisionConfig",
        {"out_hidden_size": 64, "intermediate_size": 1024},
    ),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLVisionModel", "Qwen3VLVisionConfig", {"out_hidden_size": 64}),
    "llava": ("clip", "CLIPVisionModel", "CLIPVisionConfig", {}),
    "gemma3": ("siglip", "SiglipVisionModel", "SiglipVisionConfig", {"vision_use_head": False}),
}
HIDDEN, INNER, SIDE, PICTURES = 256, 1024, 16, 2


def measured(kind: str, depth: int, trained: bool, checkpointing: bool) -> tuple[int, int, int]:
    """Return the patches of a step of the tower, what it keeps for the way back, and the most of its forward pass."""
    import torch

    folder, tower, settings, more = TOWERS[kind]
    code = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    made = getattr(importlib.import_module(f"transformers.models.{folder}.configuration_{folder}"), settings)
    if "qwen" in kind:
        sizes = {"depth": depth, "num_heads": 4, "embed_dim" if kind == "qwen2_vl" else "hidden_size": HIDDEN}
        more = more | ({"deepstack_visual_indexes": []} if kind == "qwen3_vl" else {})
    else:
        sizes = {"num_hidden_layers": depth, "num_attention_heads": 4, "hidden_size": HIDDEN}
        more = more | {"image_size": 14 * SIDE, "patch_size": 14}
    config = made(**{"intermediate_size": INNER, **sizes, **more})
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = getattr(code, tower)._from_config(config, attn_implementation="sdpa").train()
    finally:
        torch.set_default_dtype(torch.float32)
    model.requires_grad_(trained)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    patches = PICTURES * SIDE**2
    live = importlib.import_module("envdoctor.payload.tracing.live").Live()
    with live, torch.set_grad_enabled(trained):
        if "qwen" in kind:
            pixels = torch.zeros(patches, 6 * config.patch_size**2, dtype=torch.bfloat16)
            given = {"grid_thw": torch.tensor([[1, SIDE, SIDE]] * PICTURES)}
        else:
            pixels, given = torch.zeros(PICTURES, 3, 14 * SIDE, 14 * SIDE, dtype=torch.bfloat16), {}
            patches += PICTURES if kind == "llava" else 0  # CLIP has a token of its own beside them
        for tensor in (*model.parameters(), pixels):
            live.add(tensor)
        before, live.segment = live.total, "forward"
        outputs = model(pixels, **given)
        kept = live.total - before
        del outputs
    return patches, kept, live.peaks["forward"][0] - before


@pytest.mark.torch
@pytest.mark.parametrize("kind", TOWERS)
def test_a_tower_holds_what_its_sizes_say(kind: str) -> None:
    pytest.importorskip("transformers", minversion="5.20")
    inner = TOWERS[kind][3].get("intermediate_size", INNER)
    config = {"model_type": kind, "vision_config": {"hidden_size": HIDDEN, "intermediate_size": inner, "depth": 1}}
    tower = tower_of(config, recipe_of(FactSet(), KNOWN))
    assert tower is not None
    patches, _, moment = measured(kind, 2, trained=False, checkpointing=False)
    assert tower.moment == pytest.approx(moment / patches, rel=0.02)
    for checkpointing in (False, True):
        kept = [measured(kind, depth, trained=True, checkpointing=checkpointing)[1] for depth in (1, 2)]
        assert tower.kept(checkpointing) == pytest.approx((kept[1] - kept[0]) / patches, rel=0.02)


TOWER = Tower(depth=10, layer=100.0, every=10.0, moment=300.0, patches=4, largest=4000, deaf=False)
TRACE = Trace(
    {"depth": 1},
    tuple(
        {
            "layers": 1,
            "tokens": n,
            "segments": {one: [MIB, "", {"weights": MIB}] for one in ("forward/0", "backward/0")},
        }
        for n in (512, 2048)
    ),
)


@rows("trained job forward way_back moment")
def test_images_take_their_place_in_a_step(
    trained: bool, job: dict[str, Any], forward: int, way_back: int, moment: int
) -> None:
    source = with_images(MadeUp(TRACE), TOWER, trained)
    (trace,) = source([{**JOB, "lora": LORA, "tokens": [2048, 512], **job}])
    assert isinstance(trace, Trace)
    segments = trace.points[1]["segments"]
    # 2,048 tokens stand for 8,192 patches, and the largest picture has 4,000.
    sizes = [segments[name][2].get(IMAGES, 0.0) / 4000 for name in ("forward/0", "backward/0", "forward/images")]
    assert sizes == pytest.approx([forward, way_back, moment])
    # A quarter of the length has a quarter of them: what depends on no length would not grow with the batch.
    assert trace.points[0]["segments"]["forward/images"][2][IMAGES] == pytest.approx(moment * 1000)
    assert ("backward/images" in segments) == bool(way_back)


def test_code_of_its_own_may_not_compute_layers_again() -> None:
    assert TOWER._replace(deaf=True).kept(True) == TOWER.kept(False) > TOWER.kept(True)


def facts_of(framework: str, **keys: str) -> FactSet:
    """The facts of a recipe that has these keys."""
    items = [{"file": "train.yaml", "key": key, "value": value} for key, value in keys.items()]
    values = {"recipe.framework": framework, "recipe_key": Records(tuple(items))}
    return FactSet(Fact(key, value, "test", "given") for key, value in values.items())


@rows("framework keys trained")
def test_a_recipe_says_whether_the_tower_is_trained(framework: str, keys: dict[str, str], trained: bool) -> None:
    assert trained_tower(recipe_of(facts_of(framework, **keys), KNOWN)) is trained


@pytest.mark.parametrize(
    ("framework", "keys", "largest"),
    [
        ("trl", {}, 65536),
        ("llamafactory", {}, 768 * 768 / 14**2),
        ("llamafactory", {"image_max_pixels": "262144"}, 512 * 512 / 14**2),
        ("ms-swift", {"max_pixels": "1003520"}, 5120),
        ("ms-swift", {"max_pixels": "many"}, 65536),
    ],
)
def test_a_recipe_says_how_large_pictures_are(framework: str, keys: dict[str, str], largest: float) -> None:
    config = {"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1280, "depth": 32, "patch_size": 14}}
    tower = tower_of(config, recipe_of(facts_of(framework, **keys), KNOWN))
    assert tower is not None and tower.largest == pytest.approx(largest)


@pytest.mark.parametrize("vision", [None, {}, {"hidden_size": "many", "depth": 2}, {"hidden_size": -1, "depth": 2}])
def test_a_configuration_without_sizes_has_no_tower(vision: object) -> None:
    assert tower_of({"model_type": "qwen2_vl", "vision_config": vision}, recipe_of(FactSet(), KNOWN)) is None


@pytest.mark.parametrize("size", [-1, "many", 10**305, 10**400, float("inf")])
@pytest.mark.parametrize("name", ["hidden_size", "depth", "patch_size", "intermediate_size"])
def test_what_is_no_size_tells_no_tower(name: str, size: Any) -> None:
    vision = {"hidden_size": 64, "depth": 2, "patch_size": 14, "intermediate_size": 256}
    assert tower_of({"vision_config": vision}, recipe_of(FactSet(), KNOWN)) is not None
    assert tower_of({"vision_config": {**vision, name: size}}, recipe_of(FactSet(), KNOWN)) is None
