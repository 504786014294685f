"""The five stories in every dialect that can say them, and story 4 (two samples a batch) in ways beyond these."""

from pathlib import Path

import pytest
from dialects import written
from stories import BLOCK, PAGES, ROOT, STORIES, judged, marks, said, table, told

FACTS = {
    "pkg.torch": "2.5.0+cu118",
    "pkg.transformers": "4.48.0",
    "pkg.trl": "0.13.0",
    "gpu.name": ["NVIDIA H100 80GB HBM3"],
}
MODEL = "THUDM/glm-4-9b-chat-hf"
RULE = "torch-2-5-0-glm4-batch-nan"
LOAD = f"""import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
MODEL = "{MODEL}"
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
"""
#: Each way: the file that is given, and the others beside it. ``BATCH`` is the batch size.
WAYS = {
    "hf.yaml": {"": f"model_name_or_path: {MODEL}\nper_device_train_batch_size: BATCH\noutput_dir: x\nbf16: true\n"},
    "llamafactory.yaml": {
        "": f"model_name_or_path: {MODEL}\nstage: sft\nfinetuning_type: lora\nlora_target: all\ndataset: a\n"
        "template: glm4\nper_device_train_batch_size: BATCH\noutput_dir: x\n"
    },
    "axolotl.yaml": {
        "": f"base_model: {MODEL}\ndatasets:\n  - path: x/y\n    type: alpaca\nmicro_batch_size: BATCH\nadapter: lora\n"
    },
    "swift.sh": {"": f"swift sft --model {MODEL} --dataset x --per_device_train_batch_size BATCH --train_type lora"},
    "trl.sh": {
        "": f"trl sft --model_name_or_path {MODEL} --dataset_name a/b --per_device_train_batch_size BATCH --seed 1"
    },
    "sft.py": {
        "": LOAD + "from trl import SFTConfig, SFTTrainer\n"
        "SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=BATCH, output_dir='x')).train()\n"
    },
    "trainer.py": {
        "": LOAD + "args = TrainingArguments('x', per_device_train_batch_size=BATCH)\nTrainer(model, args).train()\n"
    },
    "a loop.py": {
        "": LOAD + "loader = torch.utils.data.DataLoader([], batch_size=BATCH)\n"
        "for batch in loader:\n    model(**batch).loss.backward()\n"
    },
    "a class.py": {
        "": "from dataclasses import dataclass\n@dataclass\nclass Config:\n    batch: int = BATCH\nconfig = Config()\n"
        + LOAD
        + "def main(c):\n    args = TrainingArguments('x', per_device_train_batch_size=c.batch)\n"
        "    Trainer(model, args).train()\nif __name__ == '__main__':\n    main(config)\n"
    },
    "argparse.sh": {
        "": "accelerate launch --num_processes 1 train.py --bs BATCH\n",
        "train.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--bs', type=int, default=7)\n"
        "a = p.parse_args()\n" + LOAD + "args = TrainingArguments('x', per_device_train_batch_size=a.bs)\n"
        "Trainer(model, args).train()\n",
    },
    "classes of arguments.sh": {
        "": "BS=BATCH\ntorchrun --nproc_per_node 1 train.py --output_dir x --per_device_train_batch_size $BS\n",
        "train.py": LOAD + "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "Trainer(model, args).train()\n",
    },
    "click.sh": {
        "": "deepspeed train.py --bs=BATCH\n",
        "train.py": "import click\n" + LOAD + "@click.command()\n@click.option('--bs', default=7)\ndef main(bs):\n"
        "    args = TrainingArguments('x', per_device_train_batch_size=bs)\n    Trainer(model, args).train()\nmain()\n",
    },
    "fire.sh": {
        "": "python train.py --bs BATCH\n",
        "train.py": "import fire\n" + LOAD + "def main(bs=7):\n"
        "    args = TrainingArguments('x', per_device_train_batch_size=bs)\n    Trainer(model, args).train()\n"
        "fire.Fire(main)\n",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_two_samples_are_named_and_one_is_not(facts_file, tmp_path, way):
    facts, found = facts_file(FACTS), {}
    for batch in (2, 1):
        for name, text in WAYS[way].items():
            (tmp_path / (name or way)).write_text(text.replace("BATCH", str(batch)))
        found[batch] = judged(tmp_path, facts=facts, recipe=[way])
    assert found[2][RULE] and RULE not in found[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("accelerate launch train.py --bs 2", "run.sh:1 names train.py, which is not there"),
        ("accelerate launch broken.py", "run.sh:1 names broken.py, which is not Python that this"),
        ("python train.py --bs 2", "--recipe run.sh: names train.py, which is not there"),
    ],
)
def test_a_script_that_cannot_be_read_is_said(run, facts_file, tmp_path, text, told):
    (tmp_path / "run.sh").write_text(text)
    (tmp_path / "broken.py").write_text("def (")
    answer = run("check", "--facts", facts_file(FACTS), "--recipe", "run.sh", cwd=tmp_path)
    assert told in answer.out + answer.err


def test_a_switch_of_a_script_that_is_not_there_leaves_open_what_it_may_say(run, facts_file, tmp_path):
    common = f"torchrun train.py --model_name_or_path {MODEL} --per_device_train_batch_size 2 --output_dir x --bf16 1"
    told = {}
    for switch in ("", " --use_flash_attn True", " --bits 4", " --our_bits 4"):
        (tmp_path / "run.sh").write_text(common + switch)
        answer = run("facts", "--facts", facts_file(FACTS), "--recipe", "run.sh", cwd=tmp_path)
        said = dict(line.split()[:2] for line in answer.out.splitlines() if line.startswith("recipe."))
        told[switch] = [said.get(f"recipe.{field}") for field in ("dtype", "attn", "quantization")]
    assert told[""] == ["bf16", "sdpa", None]
    assert told[" --use_flash_attn True"] == ["bf16", None, None]
    assert told[" --bits 4"] == ["bf16", "sdpa", "bnb-4bit"]
    assert told[" --our_bits 4"] == ["bf16", "sdpa", None]


@pytest.mark.parametrize(
    ("way", "written"),
    [
        ("llamafactory.yaml", "flash_attn: disabled"),
        ("swift.sh", "--attn_impl eager"),
        ("trl.sh", "--attn_implementation eager"),
    ],
)
def test_a_setting_is_said_in_the_keys_of_the_recipe(run, facts_file, tmp_path, way, written):
    (tmp_path / way).write_text(WAYS[way][""].replace("BATCH", "2"))
    answer = run("check", "--facts", facts_file(FACTS), "--recipe", way, cwd=tmp_path)
    assert f"({written})" in answer.out


def marked() -> list[tuple[str, str]]:
    """The stories and dialects of which docs/stories.md says that the cause is named."""
    block = BLOCK.search((ROOT / "docs" / "stories.md").read_text(encoding="utf-8"))
    assert block is not None
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block[2].splitlines()[2:]]
    return [(story, row[0]) for row in rows for story, mark in zip(STORIES, row[1:], strict=True) if mark == "✓"]


def test_the_tables_of_dialects_are_those_of_the_writers(tmp_path: Path) -> None:
    cells = marks(tmp_path)
    for page, head in PAGES.items():
        block = BLOCK.search((ROOT / page).read_text(encoding="utf-8"))
        assert block is not None and block[2] == table(cells, head), "python tests/metamorphic/stories.py"


@pytest.mark.parametrize(("story", "dialect"), marked())
def test_a_story_is_named_in_a_dialect(tmp_path: Path, story: str, dialect: str) -> None:
    files = written(dialect, said(story, dialect))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = told(story, tmp_path, recipe=[next(iter(files))])
    # A dialect whose own defaults say more may have an error besides: that the run does not fit, for one.
    assert STORIES[story].rule in found and any(found.values()) >= STORIES[story].fails, files


OTHERS = " --per_device_train_batch_size 1 --gradient_accumulation_steps 2"
OF_AN_OPTION = "import argparse, deepspeed\nfrom transformers import AutoModel\np = argparse.ArgumentParser()\n"
OF_AN_OPTION += "p.add_argument('--model_name')\na = p.parse_args()\nmodel = make(AutoModel, a.model_name)\n"
OF_AN_OPTION += "deepspeed.initialize(model=model, config='x').backward(1)\n"
REVISION = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
REVISION += "m = AutoModelForCausalLM.from_pretrained('./hub/Qwen2.5-7B', revision='main')\n"
REVISION += "Trainer(model=m, args=TrainingArguments('o')).train()\n"
IN_A_PACKAGE = "import transformers, kit\n@dataclass\nclass Model(kit.tools.Model):\n    model_name_or_path: str = (\n"
IN_A_PACKAGE += "        'Qwen/Qwen2.5-7B'  # or a larger one\n    )\n"
IN_A_PACKAGE += "m, t = transformers.HfArgumentParser((Model, kit.tools.Training)).parse_args_into_dataclasses()\n"
IN_A_PACKAGE += "transformers.Trainer(model=kit.tools.get_model(m), args=t).train()\n"
TOOLS = "import transformers\nclass Model:\n    model_name_or_path: str = None\n"
TOOLS += "class Training(transformers.TrainingArguments):\n    per_device_train_batch_size: int = 4\n"
TOOLS += "def get_model(args):\n    return transformers.AutoModel.from_pretrained(args.model_name_or_path)\n"


@pytest.mark.parametrize(
    ("files", "words", "told"),
    [
        ({"a/train.py": OF_AN_OPTION}, f" --model_name Qwen/Qwen2.5-7B{OTHERS}", {"model.repo": "Qwen/Qwen2.5-7B"}),
        ({"a/train.py": OF_AN_OPTION}, f" --model_name my-run{OTHERS}", {"model.repo": None}),
        ({"a/train.py": REVISION}, "", {"model.repo": "Qwen/Qwen2.5-7B"}),
        (
            {"a/train.py": IN_A_PACKAGE, "kit/__init__.py": "from kit import tools\n", "kit/tools.py": TOOLS},
            "",
            {"model.repo": "Qwen/Qwen2.5-7B", "recipe.train_batch_size": 4},
        ),
    ],
)
def test_the_model_is_found_where_a_project_names_it(run, facts_file, tmp_path, files, words, told):
    for name, text in {**files, "setup.py": "", "run.sh": f"python a/train.py{words}\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    answer = run("facts", "--facts", facts_file(FACTS), "--recipe", "run.sh", "--format", "json", cwd=tmp_path)
    assert {key: answer.json["facts"].get(key) for key in told} == told
