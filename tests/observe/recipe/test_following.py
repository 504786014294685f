"""What a recipe leaves to others: defaults of a release, modules beside a script, scripts that a shell runs."""

import json
from pathlib import Path

import pytest
from observing import shipped
from tables import cases

from envdoctor.facts import ABSENT, NOT_GIVEN, Unknown
from envdoctor.matrix import load_toml
from envdoctor.observe import RecipeFileError, read_recipe
from envdoctor.observe.recipe.formats import Formats
from envdoctor.observe.recipe.recipe import COMPUTED, UNDECIDED
from envdoctor.observe.recipe.script import calls_of

CASES = cases("following.toml")

MATRIX = shipped()
FORMATS = Formats.with_releases(MATRIX)
TABLE = load_toml(Path(__file__).resolve().parents[3] / "fixtures" / "recipes" / "following.toml")
#: Each row of the table with what its case says for all rows.
ROWS = [
    {**case, **row, "says": {**case.get("says", {}), **row.get("says", {})}}
    | {"files": {**case.get("files", {}), **row.get("files", {})}}
    for case in TABLE["case"]
    for row in case.get("rows", [{}])
]


def read(folder, name, /, files=(), **installed):
    """The facts of a recipe by their field, the model among them; ``files`` are written first."""
    for path, text in dict(files).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    versions = {f"pkg.{package.replace('_', '-')}": version for package, version in installed.items()}
    recipe = read_recipe([name], str(folder), FORMATS, lambda key: versions.get(key, NOT_GIVEN))
    found = {fact.key.removeprefix("recipe."): fact.value for fact in recipe.facts}
    return found | {"model": recipe.model and recipe.model.value, "missing": recipe.missing, "runs": recipe.runs}


def spelled(value):
    """A value as the table has it."""
    if isinstance(value, tuple):
        return [spelled(one) for one in value]
    if value in (ABSENT, None, NOT_GIVEN):
        return "absent" if value is ABSENT else "none" if value is None else "not given"
    return "?" if isinstance(value, Unknown) else value if isinstance(value, (bool, int, float)) else str(value)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["about"])
def test_a_run_is_read_as_the_table_says(tmp_path, row):
    texts = {path: TABLE["text"].get(text[1:], text) for path, text in row["files"].items()}
    files = {path: text.replace("<…>", row.get("fill", "")) for path, text in texts.items()}
    given = TABLE["package"] if row.get("package") else {}
    found = read(tmp_path, row["read"], {**given, **files}, **row.get("installed", {}))
    keys = {}
    for item in found["recipe_key"]:
        if item["state"] not in ("read", "unused"):
            keys.setdefault(item["state"], []).append(item["key"])
    told = {field: keys if field == "keys" else spelled(found.get(field, NOT_GIVEN)) for field in row["says"]}
    assert json.dumps(told) == json.dumps(row["says"])


TRL = "from trl import SFTConfig, SFTTrainer\nSFTTrainer('a/b', args=SFTConfig(output_dir='x'))\n"
ARGS = """from dataclasses import dataclass
import transformers
@dataclass
class Mine(transformers.TrainingArguments):
    model_max_length: int = 512
    optim: str = "adafactor"
"""
MAIN = """import transformers
from transformers import AutoModelForCausalLM
from pkg.args import Mine
from .constants import MODEL
def main():
    args, = transformers.HfArgumentParser(Mine).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    tokenizer.padding_side = "left"
if __name__ == "__main__":
    main()
"""
PACKAGE = {"pkg/__init__.py": "", "pkg/args.py": ARGS, "pkg/constants.py": "MODEL = 'a/b'\n", "pkg/train.py": MAIN}


@pytest.mark.parametrize("folder", CASES["lies_below_folder"])
@pytest.mark.parametrize("go", ["", "cd /tmp\n", 'cd "$DIR"/..\n', "cd other\n"])
def test_what_lies_below_the_folder_of_the_script_is_read(tmp_path, folder, go):
    shell = f'DIR={folder}\n{go}deepspeed "$DIR/train.py" --bf16 True --deepspeed="$DIR/conf/z3.json"\n'
    stages = {1: "z3.json", 2: "run/other/conf/z3.json", 3: "run/conf/z3.json"}
    files = {path: f'{{"zero_optimization": {{"stage": {stage}}}}}' for stage, path in stages.items()}
    files |= {f"{at}train.py": MAIN.replace("MODEL)", f"'{at}m')") for at in ("", "run/", "run/other/")}
    found = read(tmp_path, "run/go.sh", {**PACKAGE, **files, "run/go.sh": shell})
    assert (found["zero_stage"], found["model"], found["missing"]) == (3, "run/m", ())


@pytest.mark.parametrize(("typed", "shell", "steps"), CASES["words_behind_script"])
def test_words_behind_a_script_that_a_command_runs_are_what_it_is_given(tmp_path, typed, shell, steps):
    stage = '{"zero_optimization": {"stage": 2}}'
    main = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    main += "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(args=args).train()\n"
    found = read(tmp_path, typed, {"run/go.sh": shell, "run/z.json": stage, "run/train.py": main})
    told = Unknown if isinstance(found["max_steps"], Unknown) else found["max_steps"]
    assert (told, found["zero_stage"], found["missing"]) == (steps, 2, ())


STEPS = """python init.py --model_name_or_path base/model
cd pkg
deepspeed train.py --per_device_train_batch_size 2 --bf16 True > train.log 2>&1
deepspeed train.py --per_device_train_batch_size 4 --gradient_checkpointing > train.log --max_steps 8
python merge.py --model_name_or_path out --bf16 False
swift infer --model out
"""


@pytest.mark.parametrize("name", ["a.py", "python a.py", "accelerate launch a.py"])
@pytest.mark.parametrize(("code", "method"), CASES["script_does_same"])
def test_what_a_script_does_is_the_same_by_its_name_and_by_its_command(tmp_path, name, code, method):
    found = read(tmp_path, name, {"a.py": code})
    assert (found["method"], found["model"], found["missing"]) == (method, "a/b", ())


@pytest.mark.parametrize(
    ("options", "code"),
    [("", "model.generate(**inputs)\n"), ("--do_predict", "if args.do_train:\n    Trainer(m).train()\n")],
)
def test_what_evaluates_a_model_is_no_run(tmp_path, options, code):
    code = f"from transformers import AutoModelForCausalLM\nAutoModelForCausalLM.from_pretrained('a/b')\n{code}"
    with pytest.raises(RecipeFileError) as caught:
        read(tmp_path, "run.sh", {"run.sh": f"python a.py --per_device_eval_batch_size 8 {options}\n", "a.py": code})
    assert caught.value.started == ("a.py",)


def test_what_a_project_brings_along_does_not_hide_the_class_behind_it(tmp_path):
    models = {f"zoo/m{number}.py": "" for number in range(34)}
    start = "".join(f"import zoo.m{number}\n" for number in range(34))
    start += "import transformers\nfrom dataclasses import dataclass\nfrom zoo.args import Own\n@dataclass\n"
    start += "class Mine(transformers.TrainingArguments):\n    depth: int = 1\n"
    start += "transformers.HfArgumentParser((Own, Mine)).parse_args_into_dataclasses()\n"
    own = "from dataclasses import dataclass\n@dataclass\nclass Own:\n    image_folder: str = ''\n"
    files = {**models, "zoo/args.py": own, "go.py": start}
    options = "--bf16 True --seed 1 --image_folder x --nonsense 1"
    found = read(tmp_path, "run.sh", files | {"run.sh": f"deepspeed go.py {options}\n"})
    assert {one["key"] for one in found["recipe_key"] if one["state"] == "unknown"} == {"nonsense"}


@pytest.mark.parametrize(
    ("there", "unknown"),
    [
        ({"project/utils.py": ""}, {"nonsense"}),  # the module itself, and none of that name above it
        ({"project/pyproject.toml": ""}, {"nonsense"}),  # another project's
        ({}, set()),
        ({"project/utils.py": "#" * (8 << 20) + " nonsense"}, {"nonsense"}),
    ],
)
def test_the_words_of_a_module_are_those_of_the_nearest_in_the_project(tmp_path, there, unknown):
    start = "import transformers\nimport utils\ntransformers.TrainingArguments(**utils.parse())\n"
    files = {"project/go.py": start, "utils.py": "nonsense", **there}
    found = read(tmp_path, "run.sh", files | {"run.sh": "python project/go.py --bf16 True --seed 1 --nonsense 1\n"})
    assert {one["key"] for one in found["recipe_key"] if one["state"] == "unknown"} == unknown


@pytest.mark.parametrize("text", ["source ./gone.sh\nswift sft --model a/b\n", "bash gone.sh\nswift sft --model a/b\n"])
def test_a_script_that_is_not_there_is_said(tmp_path, text):
    missing = read(tmp_path, "run.sh", {"run.sh": text})["missing"]
    assert [(place, why) for _, place, why in missing] == [("run.sh:1", "is not there")]


LOOP = """import json, yaml
from transformers import AutoModelForCausalLM, TrainingArguments
with open("conf.yaml") as file:
    conf = yaml.safe_load(file)
more = json.loads(open("more.json").read())
model = AutoModelForCausalLM.from_pretrained(conf["model"]["name"])
TrainingArguments(".")
TrainingArguments(output_dir="x", per_device_train_batch_size=more["batch"], bf16=True, learning_rate=1e-5)
"""


def test_a_file_that_two_others_name_is_read_once(tmp_path):
    files = {
        "run.sh": "accelerate launch --config_file acc.yaml train.py --deepspeed ds.json\n",
        "acc.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}\n",
        "ds.json": '{"zero_optimization": {"stage": 3}}',
        "train.py": TRL,
    }
    keys = [item["key"] for item in read(tmp_path, "run.sh", files)["recipe_key"] if item["format"] == "deepspeed"]
    assert keys == ["stage"]


FIREFLY = """from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, GPTQConfig, HfArgumentParser, TrainingArguments
from unsloth import FastLanguageModel
@dataclass
class Mine:
    max_seq_length: int = field(metadata={"help": "tokens"})
    q_lora: bool = False
    use_unsloth: bool = True
@dataclass
class Training(TrainingArguments):
    cache_dir: str = None
    learning_rat: float = 0.1
def fast(mine):
    return FastLanguageModel.from_pretrained("a/b", max_seq_length=mine.max_seq_length, load_in_4bit=True)
def plain(mine):
    return AutoModelForCausalLM.from_pretrained("a/b", quantization_config=GPTQConfig(bits=4))
mine, training = HfArgumentParser((Mine, Training)).parse_json_file(json_file="a.json")
def faster(mine):
    return fast(mine)
model = fast(mine) if mine.use_unsloth else plain(mine)
if mine.use_unsloth:
    faster(mine)
"""
FIREFLY_FILE = '{"max_seq_length": 1024, "use_unsloth": false, "q_lora": true, "learning_rate": 2e-4, "cache_dir": "x"}'


def test_the_options_of_a_file_count_and_what_they_leave_out_does_not(tmp_path):
    found = read(tmp_path, "a.py", {"a.py": FIREFLY, "a.json": FIREFLY_FILE}, transformers="4.40.0")
    assert (found["framework"], found["max_length"], found["quantization"]) == ("transformers", 1024, "gptq")
    assert [item["key"] for item in found["recipe_key"] if item["state"] == "unknown"] == []


@pytest.mark.parametrize(
    ("parsing", "words"),
    [
        ('parse_yaml_file(yaml_file="a.json")', ""),
        ('parse_args_into_dataclasses(args_file_flag="--args_file")', "--args_file a.args --learning_rate 2e-4"),
    ],
)
def test_a_file_of_options_is_read_whatever_names_it(tmp_path, parsing, words):
    script = FIREFLY.replace('parse_json_file(json_file="a.json")', parsing)
    options = "--max_seq_length 1024\n--use_unsloth false --q_lora\n--learning_rate 1"
    files = {"run.sh": f"python a.py {words}\n", "a.py": script, "a.json": FIREFLY_FILE, "a.args": options}
    found = read(tmp_path, "run.sh", files, transformers="4.40.0")
    assert (found["max_length"], found["quantization"], found["learning_rate"]) == (1024, "gptq", 2e-4)
    assert [item["key"] for item in found["recipe_key"] if item["state"] == "unknown"] == []


@pytest.mark.parametrize(("parsing", "state"), CASES["options_of_two_parsers"])
def test_an_option_is_known_where_a_parser_before_that_of_the_library_may_take_it(tmp_path, parsing, state):
    script = f"import argparse\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n{parsing}\n"
    script += "Trainer(args=args).train()\n"
    found = read(tmp_path, "run.sh", {"run.sh": "python a.py --w_bits 4 --max_steps 7", "a.py": script})
    assert found["max_steps"] == 7
    assert {item["state"] for item in found["recipe_key"] if item["key"] == "w_bits"} == {state}


OPTIONS_FILE = """import argparse, sys
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Mine:
    model: str = "a/default"
mine, training = HfArgumentParser((Mine, TrainingArguments)).PARSING
model = AutoModelForCausalLM.from_pretrained(mine.model)
Trainer(model, training).train()
"""


@pytest.mark.parametrize(("command", "parsing", "model", "size"), CASES["options_file_cannot"])
def test_options_of_a_file_that_cannot_be_read_are_no_defaults(tmp_path, command, parsing, model, size):
    options = "--model a/given --per_device_train_batch_size 4"
    files = {"run.sh": command, "af/t.py": OPTIONS_FILE.replace("PARSING", parsing), "af/x.args": options}
    (tmp_path / "af").mkdir()
    (tmp_path / "af/latin.args").write_bytes(f"{options} --run_name caf\xe9".encode("latin-1"))
    found = read(tmp_path, "run.sh", files, transformers="4.46.0")
    assert found["framework"] == "transformers"
    assert found["model"] == model or (model is None and isinstance(found["model"], Unknown))
    batch_size = found["train_batch_size"]
    assert batch_size == size or (size is None and isinstance(batch_size, Unknown))


@pytest.mark.parametrize("work", ["parser.parse_args()", "dict(config)", "config.update(config)", "f(**config)"])
def test_what_is_copied_or_parsed_in_loops_in_loops_ends_the_reading(work):
    """The text is hostile: 8,000,000 rounds, each of which copies 200 settings."""
    names = "".join(f"    f{at}: int = {at}\n" for at in range(200))
    loops = "for a in fields(C):\n for b in fields(C):\n  for c in fields(C):\n   "
    start = "config = dict({})\n".format(", ".join(f"k{at}={at}" for at in range(200)))
    made = "parser = ArgumentParser()\nfor a in fields(C):\n parser.add_argument(f'--{a.name}')\n"
    text = f"class C:\n{names}{start}{made}{loops}{work}; told()\n"
    assert 100 < len(calls_of(text.encode(), notebook=False, names="told")) < 2_000


def test_options_of_a_file_that_nobody_can_tell_are_open(tmp_path):
    text = FIREFLY.replace('parse_json_file(json_file="a.json")', "parse_yaml_file(yaml_file=chosen())")
    found = read(tmp_path, "a.py", {"a.py": text}, transformers="4.40.0")
    assert not isinstance(found["max_length"], int)


@pytest.mark.parametrize(("text", "words", "followed"), CASES["function_branch_not"])
def test_a_function_of_a_branch_that_is_not_taken_is_followed_where_it_may_run(text, words, followed):
    calls = calls_of(f"def train():\n    inside()\n{text}".encode(), notebook=False, words=words.split())
    assert ("inside" in [name for name, *_ in calls]) is followed


@pytest.mark.parametrize(
    ("trainer", "framework", "length"),
    [("Seq2SeqTrainerForChatGLM", "chatglm-efficient-tuning", 1024), ("CustomSeq2SeqTrainer", "llamafactory", 2048)],
)
def test_two_projects_whose_script_has_one_name_are_told_by_what_it_calls(tmp_path, trainer, framework, length):
    files = {"run.sh": "python src/train_bash.py --model_name_or_path a/b --stage sft --finetuning_type lora\n",
             "src/train_bash.py": f"from tuner import {trainer}\n{trainer}(model=model)\n"}  # fmt: skip
    found = read(tmp_path, "run.sh", files, llamafactory="0.9.3")
    assert (found["framework"], found["max_length"]) == (framework, length)
    files["run.sh"] = files["run.sh"][:-1] + " --max_source_length 64 --max_target_length 128\n"
    assert read(tmp_path, "run.sh", files)["max_length"] == 192


HYDRA = """import hydra
from transformers import AutoModelForCausalLM, TrainingArguments
@hydra.main(config_path="conf", config_name="base", version_base=None)
def main(cfg):
    AutoModelForCausalLM.from_pretrained(cfg.model.path)
    TrainingArguments("x", per_device_train_batch_size=cfg.batch, bf16=cfg.model.bf16, max_steps=cfg.steps)
main()
"""
CONF = "defaults:\n  - _self_\n  - model: small\n  - extra: null\nbatch: 1\nsteps: ${batch}\n"
HYDRA_FILES = {
    "main.py": HYDRA,
    "conf/base.yaml": CONF,
    "conf/model/small.yaml": "defaults:\n  - parts@_here_: half\npath: a/b\n",
    "conf/model/parts/half.yaml": "bf16: true\n",
    "conf/model/large.yaml": "path: a/large\nbf16: false\n",
    "conf/extra/long.yaml": "# @package _global_\ndefaults:\n  - override /model: large\nsteps: ${oc.env:STEPS}\n",
}


@pytest.mark.parametrize(("words", "model", "batch", "bf16", "steps"), CASES["hydra_composes_files"])
@pytest.mark.parametrize(
    "folder", ['"conf"', '"../x/conf"', "str(HERE)", "HERE", "os.path.join(os.path.dirname(__file__), 'conf')"]
)
def test_hydra_composes_its_files_and_the_words_of_the_command(tmp_path, words, model, batch, bf16, steps, folder):
    here = "import os\nfrom pathlib import Path\nHERE = Path(__file__).resolve().parent / 'conf'\n"
    files = {**HYDRA_FILES, "main.py": here + HYDRA.replace('"conf"', folder), "run.sh": f"python main.py {words}\n"}
    found = read(tmp_path, "x/run.sh", {f"x/{name}": text for name, text in files.items()})
    said = [found["model"], *(found.get(field) for field in ("train_batch_size", "dtype", "max_steps"))]
    dtype = {True: "bf16", False: None, "?": "?"}
    assert ["?" if isinstance(one, Unknown) else one for one in said] == [model, batch, dtype[bf16], steps]


#: What a script may hand to anything that is followed by its name: values of every kind, told or not.
ODD = (
    *(
        "unknown()",
        "None",
        "[]",
        "{}",
        "''",
        "'x'",
        "'\\0'",
        "0",
        "-1.5",
        "10**9",
        "b''",
        "...",
        "lambda: 0",
        "print",
        "len",
    ),
    *("[unknown()]", "(1, 'x')", "{'a': unknown()}", "{unknown(): 1}", "Kind", "Kind()", "taken", "Path(__file__)"),
    *("argparse.ArgumentParser()", "HfArgumentParser(Kind)", "AutoModel.from_pretrained('x')", "dict(a=1)", "os.path"),
)
FOLLOWED = """import argparse, hydra, json, os, typer, click, yaml
from pathlib import Path
class Kind:
    a: int = 1
def taken(*rest, **named): return rest
odd.parent; odd.a; odd["a"]; odd[0]; odd[:odd]; odd / "x"; "x" / odd; odd + odd; odd < odd; not odd; -odd; f"{odd}"
odd and 1; odd or 1; 1 if odd else 2; odd(1); odd.get(odd); odd.update(odd); odd.items(); odd.split(odd); odd.pop(odd)
for one in odd: print(one)
x = y, *z = odd
x.a = odd; x[odd] = 1
Path(odd, odd); os.path.join(odd, odd); os.path.dirname(odd); open(odd); json.load(odd); yaml.safe_load(odd); len(odd)
dict(odd, a=odd); vars(odd); fields(odd); getattr(odd, odd, 1); getattr(torch, odd); int(odd); float(odd)
bool(odd); str(odd); os.environ.get(odd, odd); deepcopy(odd); Namespace(a=odd, **odd)
taken(odd, *odd, a=odd, **odd); Kind(odd, b=odd, **odd)
parser = argparse.ArgumentParser(fromfile_prefix_chars=odd)
parser.add_argument(odd, odd, default=odd, type=odd, nargs=odd, dest=odd, action=odd, required=odd)
parser.set_defaults(a=odd); parser.add_argument("--b", default=odd, nargs=odd); parser.parse_args(odd)
data = HfArgumentParser(dataclass_types=odd)
HfArgumentParser((Kind, odd)).parse_args_into_dataclasses(args_file_flag=odd); data.parse_json_file(odd)
get_peft_model(odd, odd); odd.from_pretrained(odd); SFTTrainer(odd, model=odd, args=odd); TrainingArguments(odd, **odd)
optimizer = AdamW(odd.parameters(), odd); input_ids[:odd]
@hydra.main(config_path=odd, config_name=odd, version_base=odd)
def composed(cfg): print(cfg.a.b)
@hydra.main(odd)
def also(cfg=odd): pass
@hydra.main(config_path="..", config_name=odd)
def named(cfg): taken(**cfg)
@app.command(odd)
@click.option(odd, odd, default=odd, is_flag=odd, type=odd)
def clicked(a=odd, *, b=typer.Option(odd)): pass
@typer.command()
def typed(a=odd, *, b=typer.Option(odd)): pass
fire.Fire(odd); typer.run(odd)
"""


@pytest.mark.parametrize("odd", ODD)
def test_nothing_that_a_script_hands_on_ends_the_reading(tmp_path, odd):
    (tmp_path / "x.yaml").write_text("defaults:\n  - {x: 1}\n  - 7\n  - a@b@c: [1, {}]\n  - '': ''\n", encoding="utf-8")
    code = FOLLOWED.replace("odd.parent", f"odd = {odd}\nodd.parent", 1).encode()
    for words in ((), ("--b", None, "x=1", "x=", None, "+x=y"), ("--config-name", "x", "--config-path", ".")):
        told = [name for name, *_ in calls_of(code, notebook=False, words=words, folder=str(tmp_path))]
        assert told[0] == "training" and "SFTTrainer" in told and "typer.run" in told


SFT = """from transformers import AutoTokenizer, TrainingArguments
from trl import SFTConfig, SFTTrainer, DPOTrainer
tokenizer = AutoTokenizer.from_pretrained("a/b", model_max_length=2048)
{}("a/b", tokenizer=tokenizer, {})
"""


@pytest.mark.parametrize("trl", ["0.7.4", "0.9.4", "0.14.0", "0.15.0", "0.24.0", None])
@pytest.mark.parametrize(("trainer", "given", "length"), CASES["length_tokenizer_no"])
def test_the_length_of_a_tokenizer_is_no_longer_than_the_trainer_of_trl_takes(tmp_path, trl, trainer, given, length):
    versions = {"trl": trl} if trl else {}
    assert read(tmp_path, "a.py", {"a.py": SFT.format(trainer, given)}, **versions)["max_length"] == length
    shorter = SFT.format(trainer, given).replace("model_max_length=2048", "model_max_length=512")
    written = str(length) in given
    assert read(tmp_path, "a.py", {"a.py": shorter}, **versions)["max_length"] == (length if written else 512)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("python train.py \\\n  # the model\n  --bf16 True \\\n  # steps\n  --max_steps 9\n", [("bf16", "run.sh:3")]),
        ("python train.py --max_steps 9\n  --bf16 True\n", [("bf16", "run.sh:2")]),
        ("python -m verl.trainer.main_ppo data.val=1 \\ # TODO: to be set\n data.len=2\n", [("len", "run.sh:2")]),
        ("case $1 in\n  -b | --bf16 ) shift ;;\nesac\npython train.py \\\n  --bf16 True\n", []),
        ("ARGS=(\n  --bf16 True\n)\npython train.py ${ARGS[@]}\necho done\n", []),
        (
            "case $1 in\n  --train)\n  python train.py\n  ;;\n  --eval)\n  python train.py ;; # both\n  --all)\nesac\n",
            [],
        ),
        ("python train.py && # and then\n  --bf16 True\n", []),
        ("python train.py ^\n  --bf16 True ^\n  --max_steps 9\n", []),
    ],
)
def test_options_behind_the_end_of_a_command(tmp_path, text, cut):
    (tmp_path / "train.py").write_text("from transformers import TrainingArguments\nTrainingArguments('x')\n")
    for name in ("run.sh", "run.ps1"):  # PowerShell joins lines in its own way
        items = read(tmp_path, name, {name: text})["recipe_key"]
        told = [(item["key"], item["place"][0]) for item in items if item["format"] == "cut-off"]
        assert told == (cut if name == "run.sh" else [])


@pytest.mark.parametrize(("text", "size"), TABLE["branches"])
def test_what_a_shell_script_sets_in_a_branch(tmp_path, text, size):
    (tmp_path / "train.py").write_text("from transformers import TrainingArguments\nTrainingArguments('x')\n")
    script = text + 'python train.py --per_device_train_batch_size "$BS" --max_steps 9\n'
    found = read(tmp_path, "run.sh", {"run.sh": script, "four.sh": "BS=4\n"})
    assert found["max_steps"] == 9
    assert found["train_batch_size"] == (Unknown(UNDECIDED) if size == "undecided" else size)


def test_options_of_an_undecided_branch_leave_the_others_known(tmp_path):
    (tmp_path / "train.py").write_text("from transformers import TrainingArguments\nTrainingArguments('x')\n")
    branch = 'if [ -f a ]; then ARGS="$ARGS --per_device_train_batch_size 4"; fi\n'
    text = f'ARGS="--max_steps 9"\n{branch}ALL="python train.py $ARGS"\n$ALL\n'
    found = read(tmp_path, "run.sh", {"run.sh": text})
    assert (found["max_steps"], found["train_batch_size"]) == (9, Unknown(UNDECIDED))


CONDITIONAL = """import inspect
from trl import SFTConfig, SFTTrainer
from peft import LoraConfig, get_peft_model
options = dict(output_dir="x", per_device_train_batch_size=3)
if "max_seq_length" in inspect.signature(SFTConfig).parameters:
    options["max_seq_length"] = 9
if asked():
    model = get_peft_model(model, LoraConfig(r=4))
if other():
    trainer = SFTTrainer(model, args=SFTConfig(**options))
    trainer.train(resume_from_checkpoint=True)
else:
    trainer = SFTTrainer(args=SFTConfig(**options))
    trainer.train()
"""


def test_what_is_done_under_a_condition_is_not_certain(tmp_path):
    found = read(tmp_path, "a.py", {"a.py": CONDITIONAL}, trl="0.24.0")
    assert all(isinstance(found[field], Unknown) for field in ("method", "max_length", "resume"))
    assert (found["stage"], found["train_batch_size"]) == ("sft", 3)
    called = {item["key"]: item["call"] for item in found["recipe_key"]}
    assert called["max_seq_length"] is ABSENT and called["per_device_train_batch_size"] == "trl.SFTConfig"


LOADED = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("a/b")
made = AutoModelForCausalLM
llm = made.from_pretrained("a/b").{cast}.cuda()
def cut(example):
    {cut}
Trainer(llm, TrainingArguments("x", **{rest}))
"""
VLLM = "vllm serve a/b --gpu-memory-utilization 0.9"
COMPOSE = "services:\n  one:\n    image: {image}\n    command: {command}\n"


@pytest.mark.parametrize(("cast", "cut", "rest", "expected"), CASES["model_tokenizer_followed"])
def test_a_model_and_a_tokenizer_are_followed_whatever_they_are_called(tmp_path, cast, cut, rest, expected):
    found = read(tmp_path, "a.py", {"a.py": LOADED.format(cast=cast, cut=cut, rest=rest)})
    assert {field: found[field] for field in expected} == expected


def test_settings_that_nobody_can_tell_leave_no_default(tmp_path):
    found = read(tmp_path, "a.py", {"a.py": LOADED.format(cast="half()", cut="pass", rest="asked()")})
    assert isinstance(found["train_batch_size"], Unknown) and isinstance(found["gradient_checkpointing"], Unknown)


OPEN = Unknown(COMPUTED)
ANY_KEY = """import transformers
key = "dtype" if transformers.__version__ >= "5" else "torch_dtype"
def load(name, **more):
    return transformers.AutoModelForCausalLM.from_pretrained(name, **more)
{lines}
transformers.Trainer(load("a/b", **{more}), transformers.TrainingArguments("x")).train()
"""


@pytest.mark.parametrize(
    ("lines", "more", "dtype", "attention"),
    [
        ("", "{}", ABSENT, NOT_GIVEN),
        ("", "{key: x}", OPEN, OPEN),
        ("", "{'attn_implementation': 'sdpa', key: x}", OPEN, "sdpa"),
        ("more = {'attn_implementation': 'sdpa'}; more[key] = x", "more", OPEN, "sdpa"),
        ("more = dict(torch_dtype='float16'); more.update(asked())", "more", "fp16", OPEN),
        ("more = {**asked(), 'torch_dtype': 'float16'}", "more", "fp16", OPEN),
        ("", "dict(attn_implementation='sdpa', **asked())", OPEN, "sdpa"),
    ],
)
def test_a_key_that_nobody_can_tell_may_be_any(tmp_path, lines, more, dtype, attention):
    found = read(tmp_path, "a.py", {"a.py": ANY_KEY.format(lines=lines, more=more)}, transformers="4.51.0")
    assert [found.get(field, NOT_GIVEN) for field in ("load_dtype", "attn")] == [dtype, attention]


@pytest.mark.parametrize(
    ("length", "expected"), [("100_000", NOT_GIVEN), ("1e30", NOT_GIVEN), ("int(1e30)", NOT_GIVEN), ("32768", 32768)]
)
def test_the_length_of_a_tokenizer_that_has_none_is_not_that_of_the_samples(tmp_path, length, expected):
    cut = f"tok(example)\ntok.model_max_length = {length}"
    found = read(tmp_path, "a.py", {"a.py": LOADED.format(cast="half()", cut=cut, rest="{}")})
    assert found.get("max_length", NOT_GIVEN) == expected


@pytest.mark.parametrize(("name", "text"), CASES["command_container_or"])
def test_the_command_of_a_container_or_of_a_makefile_is_one(tmp_path, name, text):
    found = read(tmp_path, name, {name: text})
    assert (found["model"], found["method"], found["gpu_memory_utilization"]) == ("a/b", "serve", 0.9)
    place = next(item["place"][0] for item in found["recipe_key"] if "utilization" in item["key"])
    row = next(number for number, line in enumerate(text.splitlines(), 1) if "utilization" in line)
    assert place == f"{name}:{row}"


def test_what_aliases_repeat_is_looked_at_once(tmp_path):
    aliases = "".join(f"k{at}: *one\n" for at in range(2500))
    text = f"one: &one [1, 2, 3]\n{aliases}{COMPOSE.format(image='mine', command=VLLM)}"
    assert read(tmp_path, "compose.yml", {"compose.yml": text})["model"] == "a/b"


LOOPED = """import argparse
from dataclasses import dataclass, fields
from peft import LoraConfig
from transformers import BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer
@dataclass
class Config:
    model: str = "a/small-1B"
    batch: int = 1
    four: bool = False
parser = argparse.ArgumentParser()
for one in LOOP:
    parser.add_argument(f"--{one.name}", type=one.type, default=one.default)
config = Config(**vars(parser.parse_args()))
four = {"quantization_config": BitsAndBytesConfig(load_in_4bit=True)} if config.four else {}
more = {"model_init_kwargs": {**four}, "per_device_train_batch_size": config.batch}
arguments = SFTConfig("out", max_length=2048, **more)
SFTTrainer(model=config.model, args=arguments, peft_config=LoraConfig(r=8)).train()
"""


@pytest.mark.parametrize(("loop", "options", "told"), CASES["options_parser_made"])
def test_options_of_a_parser_that_are_made_in_a_loop(tmp_path, loop, options, told):
    files = {"run.sh": f"python t.py {options}\n", "t.py": LOOPED.replace("LOOP", loop)}
    found = read(tmp_path, "run.sh", files)
    known = [found[field] for field in ("model", "train_batch_size", "quantization", "method")]
    assert [Unknown if isinstance(one, Unknown) else one for one in known] == told
    assert found["max_length"] == 2048


RUN = "accelerate launch --num_processes 1 t.py --model_name_or_path a/{} --output_dir o"
EVALUATION = (
    "# scores what Trainer wrote\nfrom transformers import AutoModel\nAutoModel.from_pretrained('a/e').generate()\n"
)


@pytest.mark.parametrize(
    ("text", "model", "runs"),
    [
        (f"{RUN.format('one')} && {RUN.format('two')}\n", "a/two", (1, 1)),  # each is said
        ("".join(f"{RUN.format(at)}\n" for at in range(1, 151)), "a/150", (150, *range(1, 150))),
        (f"{RUN.format('one')}\npython e.py\n", "a/one", ()),  # a comment is no word of its script
        ("torchrun m.py --do_train --model a/one\ntorchrun m.py --do_eval --model a/two\n", "a/one", ()),
    ],
)
def test_of_many_commands_the_last_that_trains_is_the_run_and_each_is_said(tmp_path, text, model, runs):
    script = """from transformers import HfArgumentParser, TrainingArguments, Trainer, AutoModelForCausalLM
from dataclasses import dataclass
@dataclass
class Args:
    model_name_or_path: str = "a/none"
args, training = HfArgumentParser((Args, TrainingArguments)).parse_args_into_dataclasses()
Trainer(AutoModelForCausalLM.from_pretrained(args.model_name_or_path), training).train()
"""
    found = read(tmp_path, "run.sh", {"run.sh": text, "t.py": script, "e.py": EVALUATION})
    assert found["model"] == model
    assert dict(found["runs"]).get("run.sh", ()) == runs
