"""Recipes of every format: what each says, and where."""

import errno
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observing import shipped
from tables import cases

from envdoctor.facts import ABSENT, NOT_GIVEN, Records, Unknown, parse_value, spell, unlisted
from envdoctor.matrix import load_toml
from envdoctor.observe import RecipeFileError, read_recipe
from envdoctor.observe.recipe.formats import Formats
from envdoctor.observe.recipe.parts import command_parts
from envdoctor.observe.recipe.recipe import HELPERS

CASES = cases("recipe.toml")

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
EXPECTED = load_toml(FIXTURES / "recipes" / "expected.toml")
MATRIX = shipped()
FORMATS = Formats.with_releases(MATRIX)


def read(folder, *names, **installed):
    versions = {f"pkg.{name}": version for name, version in installed.items()}
    return read_recipe(names, str(folder), FORMATS, lambda key: versions.get(key, NOT_GIVEN))


def written(folder, content, name="train.yaml", **installed):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(folder, name, **installed)


def fact_of(recipe, key):
    return next((fact.value for fact in recipe.facts if fact.key == key), None)


def value(recipe, field):
    return fact_of(recipe, f"recipe.{field}")


def origin(recipe, field):
    return next(fact.origin for fact in recipe.facts if fact.key == f"recipe.{field}")


def keys(recipe, state):
    return [
        (item["key"], item["other"], item["place"][0])
        for item in fact_of(recipe, "recipe_key")
        if item["state"] == state
    ]


def told(recipe):
    """What a recipe says without its defaults, as in expected.toml."""
    facts = [*recipe.facts, *([recipe.model._replace(key="model")] if recipe.model else [])]
    found = {}
    for fact in facts:
        if fact.key == "recipe_file":
            found[fact.key] = " ".join(f"{item['path']}={item['format']}" for item in fact.value)
        elif fact.key == "recipe_key":
            for item in fact.value:
                if item["state"] not in ("read", "unused"):
                    other = "" if item["other"] is ABSENT else item["other"]
                    found[f"{item['state']} {item['key']}"] = f"{other} | {item['place'][0]}"
        elif not fact.origin.startswith("default") and fact.key != "recipe.arguments":
            found[fact.key] = f"{'unknown' if isinstance(fact.value, Unknown) else spell(fact.value)} | {fact.origin}"
    return found


# --- the formats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    ["--base_model a/b --micro_batch_size 4 --cutoff_len 512", "--model_name_or_path a/b --dataset_name c --bf16 True"],
)
def test_options_of_a_script_that_is_not_here_are_no_framework(tmp_path, options):
    """Those of alpaca-lora were taken for axolotl's, which trains the whole model where no adapter is named."""
    recipe = written(tmp_path, f"python finetune.py {options} --lora_r 8", "run.sh")
    assert (value(recipe, "framework"), value(recipe, "lora_r")) == ("transformers", 8)
    assert recipe.model.value == "a/b" and [name for name, *_ in recipe.missing] == ["finetune.py"]
    made = ("method", "quantization", "gradient_checkpointing")
    assert all(isinstance(value(recipe, field), Unknown) for field in made), "the script may make the model in any way"
    (tmp_path / "finetune.py").write_text(PLAIN)
    assert value(read(tmp_path, "run.sh"), "gradient_checkpointing") is False


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_file_is_read_as_expected_with_its_lines(name):
    path = FIXTURES / name
    assert told(read(path.parent, path.name)) == EXPECTED[name]


def test_every_example_file_is_expected():
    folders = [path for top in ("recipes", "stories") for path in (FIXTURES / top).iterdir() if path.is_dir()]
    files = (path for top in folders for path in top.rglob("*") if path.is_file())
    models = {path.parent for top in folders for path in top.rglob("config.json")}  # beside the recipes of a story
    there = {str(path.relative_to(FIXTURES)) for path in files if path.parent not in models}
    assert there == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(load_toml(FIXTURES / "recipes" / "keymap.toml")))
def test_every_key_that_decides_about_memory_is_read_or_named_as_not_used(name):
    for key, field in load_toml(FIXTURES / "recipes" / "keymap.toml")[name].items():
        found = FORMATS.find(FORMATS[name], key)
        assert found is not None, key
        assert field in [meaning.field for meaning in found[1]] or (not field and not found[1]), key


@pytest.mark.parametrize("form", list(FORMATS), ids=lambda form: form.name)
def test_what_the_table_says_are_values_of_registered_fields(form):
    meanings = [meaning for said in form.keys.values() for meaning in said]
    pairs = [(meaning.field, word) for meaning in meanings for word in ("", *meaning.words.values())]
    rows = [*form.row.get("versioned", ()), *form.row.get("implied", ())]
    pairs += [(row["field"], row["value"]) for row in rows]
    pairs += [("reference_model", word) for word in form.row.get("reference", {}).values()]
    for said in (form.row.get("says", {}), form.row.get("defaults", {}), *form.names.values()):
        pairs += [(field, word) for field, word in said.items() if field != "call"]
    for field, word in pairs:
        spec = MATRIX.registry.find(f"recipe.{field}") or HELPERS[field]
        if word not in ("", "?"):
            assert unlisted(spec, parse_value(spec, word)) is None, (field, word)
    assert all(FORMATS[name] for name in form.includes.values())


def test_the_columns_that_rules_use_are_registered():
    recipe = read(FIXTURES / "recipes" / "llamafactory", "sft.yaml")
    for key in ("recipe_file", "recipe_key"):
        records = next(fact.value for fact in recipe.facts if fact.key == key)
        assert isinstance(records, Records) and records.incomplete is None
        for item in records:
            assert set(item) == set(MATRIX.registry.find(key).columns)


# --- several files, defaults -----------------------------------------------------------------------------------------


def test_the_last_of_several_files_wins_and_deepspeed_must_agree(tmp_path):
    (tmp_path / "a.yaml").write_text("output_dir: a\nper_device_train_batch_size: 1\nbf16: true\n")
    (tmp_path / "b.yaml").write_text("per_device_train_batch_size: 2\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4}')
    recipe = read(tmp_path, "a.yaml", "ds.json", "b.yaml")
    assert value(recipe, "train_batch_size") == 2 and origin(recipe, "train_batch_size") == "b.yaml:1"
    assert value(recipe, "zero_stage") == 2 and value(recipe, "dtype") == "bf16"
    assert keys(recipe, "contradicted") == [("train_micro_batch_size_per_gpu", "2 (b.yaml:1)", "ds.json:1")]


def test_a_file_that_is_named_and_not_there_leaves_open_what_it_may_say(tmp_path):
    recipe = written(tmp_path, "cutoff_len: 100\nfinetuning_type: lora\ndeepspeed: ds.json\n")
    assert recipe.missing == (("ds.json", "train.yaml:3", "is not there"),)
    assert isinstance(value(recipe, "zero_stage"), Unknown)
    for words in ('--deepspeed "$FILE"', "--deepspeed $1"):
        command = f"deepspeed --num_gpus 2 train.py --output_dir a --model_name_or_path a/b --bf16 True {words}\n"
        assert isinstance(value(written(tmp_path, command, "run.sh"), "zero_stage"), Unknown)
    without = written(tmp_path, "cutoff_len: 100\nfinetuning_type: lora\n")
    assert value(without, "zero_stage") is ABSENT


@pytest.mark.parametrize(("name", "stage", "optimizer", "weights"), CASES["file_not_there"])
def test_a_file_that_is_not_there_says_by_its_name_how_it_divides(tmp_path, name, stage, optimizer, weights):
    recipe = written(tmp_path, f"cutoff_len: 100\nfinetuning_type: lora\ndeepspeed: {name}\n")
    told = [value(recipe, field) for field in ("zero_stage", "offload_optimizer", "offload_param")]
    assert told == [stage, optimizer, weights] or (stage is None and isinstance(told[0], Unknown))
    assert isinstance(value(recipe, "reduce_bucket"), Unknown)
    assert stage is None or "by its name it is ZeRO" in origin(recipe, "zero_stage")


def test_only_a_missing_file_that_is_for_deepspeed_says_so_by_its_name(tmp_path):
    (tmp_path / "ds_z3_config.json").write_text('{"zero_optimization": {"stage": 2')
    broken = written(tmp_path, "cutoff_len: 100\nfinetuning_type: full\ndeepspeed: ds_z3_config.json\n")
    train = "train.py --model_name_or_path a/b --bf16 True --output_dir o\n"
    script = written(tmp_path, f"bash env_zero3_offload.sh\ntorchrun {train}", "run.sh")
    own = written(tmp_path, "trl sft --config sft_zero3.yaml --model_name_or_path a/b --bf16 True\n", "own.sh")
    for recipe in (broken, script, own):
        for field in ("zero_stage", "offload_optimizer", "offload_param"):
            assert isinstance(value(recipe, field), Unknown), field
    named = written(tmp_path, f"accelerate launch --config_file conf/zero3.yaml {train}", "named.sh")
    assert value(named, "zero_stage") == 3


def test_a_file_that_names_itself_is_read_once(tmp_path):
    recipe = written(tmp_path, "cutoff_len: 100\nfinetuning_type: lora\ndeepspeed: train.yaml\n")
    assert value(recipe, "max_length") == 100 and recipe.missing == ()


def test_defaults_say_whose_they_are_and_depend_on_the_release(tmp_path):
    recipe = written(tmp_path, "output_dir: a\nbf16: true\n", transformers="4.48.0", torch="2.9.0")
    assert value(recipe, "eval_batch_size") == 8
    assert origin(recipe, "eval_batch_size") == "default of transformers 4.48.0"
    assert (value(recipe, "reentrant"), origin(recipe, "reentrant")) == (True, "default with transformers 4.48.0")
    assert value(recipe, "optimizer") == "adamw_torch"
    newer = written(tmp_path, "output_dir: a\nbf16: true\n", transformers="5.0.0")
    assert value(newer, "reentrant") is False and value(newer, "optimizer") is None
    fused = written(tmp_path, "output_dir: a\nbf16: true\n", transformers="5.0.0", torch="2.9.0")
    assert value(fused, "optimizer") == "adamw_torch_fused"


@pytest.mark.parametrize(("flags", "attention"), CASES["attention_openrlhf_follows"])
def test_the_attention_of_openrlhf_follows_from_options_of_one_generation(tmp_path, flags, attention):
    script = f"deepspeed --module openrlhf.cli.train_dpo --pretrain a/b --beta 0.1 --max_len 512 {flags}\n"
    recipe = written(tmp_path, script, "train.sh")
    assert value(recipe, "attn") == attention and keys(recipe, "unknown") == []
    assert value(written(tmp_path, script, "train.sh", openrlhf="0.8.9"), "attn") == (attention or "eager")


@pytest.mark.parametrize(("text", "method"), CASES["llamafactory_merges_or"])
def test_what_llamafactory_merges_or_only_runs_is_no_training(tmp_path, text, method):
    recipe = written(tmp_path, f"model_name_or_path: a/b\ntrust_remote_code: true\n{text}")
    assert (value(recipe, "framework"), value(recipe, "method")) == ("llamafactory", method)
    assert keys(recipe, "unknown") == []
    assert value(recipe, "kernels") == (("ktransformers",) if "use_kt" in text else ())


# --- what follows, numbers, typing errors, wrong values --------------------------------------------------------------

PLAIN = """# no LoRA here
import os
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
Trainer(model=model, args=TrainingArguments(output_dir="out", bf16=True)).train()
"""


@pytest.mark.parametrize(
    ("old", "new", "method"),
    [
        ("", "", "full"),
        ("Trainer(model", "MyTrainer(model", "full"),
        ("import os", "from my_models import build", Unknown),
        ("import os", "from .models import build", Unknown),
        ("import os", "import unsloth", Unknown),
        (".train()", ".train()\nmodel.add_adapter(config)", Unknown),
        ('"out"', '"out-lora"', Unknown),
        ("import os", "for p in model.parameters(): p.requires_grad = False", Unknown),
        ("Trainer(model=model, args=", "print(model, ", Unknown),
        ("import os", "from peft import LoraConfig\nLoraConfig(r=8)", "lora"),
        (PLAIN, "from accelerate import Accelerator\nAccelerator(mixed_precision='bf16').backward(loss)\n", "full"),
    ],
)
def test_a_script_trains_all_weights_when_nothing_in_it_may_do_otherwise(tmp_path, old, new, method):
    recipe = written(tmp_path, PLAIN.replace(old, new) if old else PLAIN, "train.py")
    known = value(recipe, "method")
    assert isinstance(known, Unknown) if method is Unknown else known == method
    if old == PLAIN:  # a loop of one's own is no trainer
        assert (value(recipe, "framework"), value(recipe, "dtype")) == ("accelerate", "bf16")


@pytest.mark.parametrize(("uses", "method"), CASES["script_nothing_trains"])
def test_a_script_in_which_nothing_trains_is_not_taken_to_train(tmp_path, uses, method):
    load = "import torch\nfrom transformers import AutoModelForCausalLM\n"
    recipe = written(tmp_path, f"{load}model = AutoModelForCausalLM.from_pretrained('a/b')\n{uses}\n", "use.py")
    known = value(recipe, "method")
    assert (str(known.reason) if isinstance(known, Unknown) else known) == method


def test_no_default_stands_for_what_a_script_computes_or_a_value_that_cannot_be_used(tmp_path):
    script = "TrainingArguments(per_device_train_batch_size=args.n, bf16=True)\n"
    wrong = "output_dir: a\nbf16: true\nper_device_train_batch_size: two\n"
    for recipe in (written(tmp_path, script, "train.py"), written(tmp_path, wrong)):
        assert isinstance(value(recipe, "train_batch_size"), Unknown) and value(recipe, "batch_size") is None


BATCH = "output_dir: a\nper_device_train_batch_size: 2\n"
WRONG = "output_dir: a\nbf16: maybe\nper_device_train_batch_size: [1, 2]\neval_steps: 5\n"
MERGED = "x: &x\n  r: 16\noutput_dir: a\nbf16: true\ndeepspeed:\n  <<: *x\n  zero_optimization: {stage: 1}\n"


@pytest.mark.parametrize(
    ("content", "field", "expected"),
    [
        ("cutoff_len: 9\nfinetuning_type: full\n", "lora_r", None),  # adapters have no defaults where there are none
        ("cutoff_len: 9\nfinetuning_type: lora\n", "lora_r", 8),
        (BATCH, "batch_size", 2),
        (f"{BATCH}eval_strategy: 'no'\n", "batch_size", 2),
        (f"{BATCH}eval_strategy: steps\n", "batch_size", 8),
        (WRONG, "eval_steps", 5),
        (MERGED, "zero_stage", 1),
        ("output_dir: a\nbf16: true\neval_steps: 5\n".encode("utf-16"), "eval_steps", 5),  # as PowerShell writes it
    ],
)
def test_what_a_document_says_and_what_follows(tmp_path, content, field, expected):
    assert value(written(tmp_path, content), field) == expected


NUMBER = "output_dir: a\nbf16: true\nlearning_rate: {}\n"
MISTYPED = ("gradient_acumulation_steps", "gradient_accumulation_steps")


@pytest.mark.parametrize(
    ("content", "state", "found"),
    [
        # a number that PyYAML reads as text is named where it stays text: OmegaConf reads it as a number
        (NUMBER.format("5e-4"), "text-number", [("learning_rate", ABSENT, "a.yaml:3")]),
        (NUMBER.format("5.0e-4"), "text-number", []),
        (NUMBER.format("0.0005"), "text-number", []),
        (NUMBER.format("'5e-4'"), "text-number", []),
        (NUMBER.format("5e-4") + "cutoff_len: 9\n", "text-number", []),
        # a mistyped key is named with the nearest one, of the section it stands in
        (f"{BATCH}gradient_acumulation_steps: 4\n", "unknown", [(*MISTYPED, "a.yaml:3")]),
        ("combine: true\ntraining_args:\n  max_stesp: 5\n", "unknown", [("max_stesp", "max_steps", "a.yaml:3")]),
    ],
)
def test_a_key_that_is_not_what_was_meant_is_named_with_its_line(tmp_path, content, state, found):
    assert keys(written(tmp_path, content, "a.yaml"), state) == found


def test_a_number_of_json_is_one_and_a_value_that_cannot_be_is_named(tmp_path):
    text = '{"output_dir": "a", "bf16": true, "learning_rate": 5e-4}'
    assert keys(written(tmp_path, text, "a.json"), "text-number") == []
    assert [key for key, *_ in keys(written(tmp_path, WRONG), "unusable")] == ["bf16", "per_device_train_batch_size"]


def test_what_a_configuration_beside_the_script_says_counts_more(tmp_path):
    (tmp_path / "train.py").write_text(PLAIN)
    (tmp_path / "train.sh").write_text("trl sft --use_peft --model_name_or_path x\n")
    assert value(read(tmp_path, "train.py", "train.sh"), "method") == "lora"


# --- hostile files ---------------------------------------------------------------------------------------------------

BOMB = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(9))}}}\n" for n in range(1, 12)
)


# A project's own, beside a script that always trains adapters: keys of TRL, and as many that are not.
OWN = """model_name: a/b
chat_template: qwen3
lora_r: 16
lora_alpha: 32
load_in_4bit: true
max_length: 5120
per_device_train_batch_size: 1
gradient_checkpointing: unsloth
dataset_id: a/c
messages_field: messages
truncate_side: left
think_mode: keep
think_loss: all
"""
#: LLaMA-Factory's keys, which a project's own parser has too.
LLAMA = "stage: sft\nfinetuning_type: lora\nlora_target: all\ncutoff_len: 9\ndataset: a\n"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.yaml", BOMB, "has more than 2000 settings; aliases count"),
        ("a.yaml", "a: &a\n  b: *a\n", "is nested more than 40 levels deep"),
        ("a.yaml", "", "is empty"),
        ("a.yaml", "- 1\n- 2\n", "holds no settings"),
        ("a.yaml", "a: [1\nb: 2\n", "is not YAML: line 2"),
        ("a.json", '{"a": 1,, }', "is not JSON: line 1"),
        ("a.json", '{"a": 1\n "b": 2}', "line 2, column 5: a comma, a quote or a bracket before it is missing"),
        ("a.yaml", "[" * 20_000, "is nested too deeply"),
        ("a.yaml", b"\xff\x00", "is not text in UTF-8 (byte 0)"),
        ("a.yaml", b"a: \0\n", "is not text but binary"),
        ("a.yaml", "a: " + "x" * (600 << 10), "is larger than 256 kB"),
        ("a.yaml", "hello: world\n", "describes no run of a framework that is known"),
        # AutoTrain's, and a project's own: a key or two are also a framework's
        ("a.yaml", "task: llm\nbase_model: a/b\nparams:\n  lr: 1e-5\n", "framework that is known; say what it does"),
        ("a.yaml", "base_model: a/b\nowner: c\nepochs: 2\n", "describes no run of a framework that is known"),
        ("a.yaml", "dataset_name: a\nowner: b\nratio: 1\n", "describes no run of a framework that is known"),
        ("a.yaml", f"{LLAMA}quant_bit: 4\nuse_qlora: true\nwandb_project: a\nown: b\nmine: c\n", "describes no run"),
        ("a.yaml", OWN, "describes no run of a framework that is known"),
        ("a.yaml", "lr: 1\n", "say what it does (--set recipe.method=lora --set recipe.batch_size=2)"),
        ("a.sh", "ls -l\n", "describes no run of a framework that is known"),
        ("a.sh", "A=x\n" + 'A="$A$A"\n' * 60, "variables count for all that they stand for"),
        ("a.py", "def (", "is not Python that this interpreter can parse (line 1)"),
        ("a.ipynb", "[]", "is not a notebook"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path, name, content, expected):
    with pytest.raises(RecipeFileError, match=r"^--recipe a\.\w+: ") as error:
        written(tmp_path, content, name)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_a_folder_a_missing_file_and_a_huge_one_are_one_sentence(tmp_path):
    with open(tmp_path / "huge.yaml", "wb") as file:
        file.truncate(100 << 20)
    folder, missing = (f"cannot be read: {os.strerror(number)}" for number in (errno.EISDIR, errno.ENOENT))
    for name, expected in ((".", folder), ("no.yaml", missing), ("huge.yaml", "larger than 8 MiB")):
        with pytest.raises(RecipeFileError, match=expected):
            read(tmp_path, name)


@settings(max_examples=100, deadline=None)
@given(
    content=st.text(alphabet=st.sampled_from("ab: \n-\"'{}[],&*<!|>%@#5e"), max_size=60)
    | st.text(alphabet=st.sampled_from("a1-=: \n\t\"'${}[]()<>\\#&*!|,.E@"), max_size=80),
    name=st.sampled_from(["a.yaml", "a.json", "a.sh"]),
)
def test_any_document_is_read_with_its_lines_or_refused(tmp_path_factory, content, name):
    folder = tmp_path_factory.mktemp("recipe")
    for before in ("", "bf16: true\n", '{"bf16": true, ', "trl sft "):
        try:
            recipe = written(folder, before + content, name)
        except RecipeFileError as error:
            assert "\n" not in str(error)
            continue
        lines = [int(place.rpartition(":")[2]) for item in fact_of(recipe, "recipe_key") for place in item["place"]]
        assert all(1 <= line <= (before + content).count("\n") + 1 for line in lines)


@pytest.mark.parametrize("words", [": : ", "{{{{ ", "-- torchrun x ", "torchrun x.py ", "-m ", "torchrun -- "])
def test_a_word_of_a_script_is_asked_a_bounded_number_of_times_what_it_is(words):
    text, formats = words * (60_000 // len(words)), Formats(MATRIX)
    command_parts(text, formats)
    assert 0 < sum(formats.kind_of.cache_info()[:2]) < 5 * len(text.split())


@pytest.mark.parametrize(
    "row", ["if x; then A=1; fi\n", "if x; then ", "case $1 in a) A=1 ;; ", "x && A=1 || ", "[ ! ", "{ "]
)
def test_the_branches_of_a_hostile_script_are_read_in_their_time(row):
    began = time.process_time()
    command_parts(row * (100_000 // len(row)), FORMATS)
    assert time.process_time() - began < 10


def test_a_script_that_goes_ever_deeper_takes_memory_in_step_with_its_text():
    text = "cd a\npython x.py\n" * 5_000
    tracemalloc.start()
    try:
        parts = command_parts(text, FORMATS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert parts and peak < 100 * len(text)
