"""Options that several commands share, and how they become sources and settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from envdoctor.app.configuration import Configuration

Function = TypeVar("Function", bound=Callable[..., Any])


def together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Several options as one, in the order in which the help lists them."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def python_option(text: str) -> Callable[[Function], Function]:
    """Which interpreter; ``text`` says what for."""
    return click.option("--python", metavar="PATH", envvar="ENVDOCTOR_PYTHON", help=text)


def model_option(text: str) -> Callable[[Function], Function]:
    """Which model; ``text`` says what for."""
    return click.option("--model", metavar="REPO|DIR", envvar="ENVDOCTOR_MODEL", help=text)


def set_option(text: str) -> Callable[[Function], Function]:
    """Facts as they are typed; ``text`` has an example."""
    return click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help=text)


def seconds_option(name: str, seconds: int, text: str) -> Callable[[Function], Function]:
    """How long something may take, ``seconds`` unless it is given."""
    kind = click.FloatRange(1, 3600)
    return click.option(name, type=kind, metavar="SECONDS", default=seconds, show_default=True, help=text)


no_gpu_option = click.option("--no-gpu", is_flag=True, help="Do not ask the driver about GPUs.")

#: Which environment.
environment_options = together(
    python_option("Interpreter (or virtual environment) to judge."),
    click.option("--path", metavar="DIR", help="Folder of installed packages (pip install --target)."),
    click.option("--root", metavar="DIR", help="Root file system of an image or container."),
    click.option(
        "--lock", metavar="FILE", help="Lock or requirements, before they are installed; FILE[NAME,...] chooses extras."
    ),
    click.option("--sbom", metavar="FILE", help="Bill of materials: CycloneDX or SPDX in JSON."),
    click.option("--facts", metavar="FILE", help="Facts file, written by `envdoctor facts`; - is standard input."),
    click.option(
        "--report", metavar="FILE", help="Pasted report: env commands, pip list, issues; - is standard input."
    ),
    set_option("A fact, e.g. recipe.batch_size=2 (repeatable; the last one wins)."),
    no_gpu_option,
    click.option(
        "--no-cache",
        is_flag=True,
        help="Neither read nor write envdoctor's cache (tensor headers; what compiled files ask for).",
    ),
)

#: Which environment and which model.
source_options = together(environment_options, model_option("Model: ORG/NAME or a folder."))


def _target_option(name: str, metavar: str, text: str) -> Callable[[Function], Function]:
    return click.option(f"--target-{name}", metavar=metavar, multiple=True, help=text)


#: For which machines: what nobody can read from a lock. Each option may name several.
target_options = together(
    _target_option("python", "VERSION", "Judge for this Python: 3.11. (repeatable, or 'A,B': judges each)"),
    _target_option("platform", "SYSTEM-ARCH", "Judge for this system: linux-x86_64."),
    _target_option("gpu", "NAME", "Judge for this GPU: A100; none: for the CPU."),
    _target_option("driver", "VERSION", "Judge for this NVIDIA driver: 535."),
    click.option("--resolve", is_flag=True, help="Ask uv, which uses the network, what the list of --lock takes."),
    click.option("--as-of", metavar="DATE", help="Day on which the list of --lock is installed: 2024-05-01."),
)

code_option = click.option(
    "--code",
    metavar="PATH",
    multiple=True,
    help="Your own script, notebook or folder: judges what it uses (repeatable; it is parsed, never run).",
)

recipe_option = click.option(
    "--recipe",
    metavar="FILE",
    multiple=True,
    help="What describes the run: YAML, JSON, a script or command line (repeatable).",
)

#: Object ids are those of the content: what is not read to the end stays unknown.
hash_option = click.option(
    "--hash", is_flag=True, help="Read files above 64 MiB to the end, to compare them by content (with a pin, too)."
)

#: How far the Hub may be asked.
hub_options = together(
    click.option("--offline", is_flag=True, help="Only the local cache and folders."),
    seconds_option("--timeout", 60, "For everything that is asked of the Hub."),
)

lang_option = click.option(
    "--lang", type=click.Choice(["auto", "en", "zh"]), envvar="ENVDOCTOR_LANG", help="Language of the text.  [auto]"
)


def matrix_option(text: str) -> Callable[[Function], Function]:
    """Which private rules."""
    return click.option("--matrix", metavar="DIR", multiple=True, type=click.Path(path_type=Path), help=text)


#: Which configuration and which private rules.
configuration_options = together(
    matrix_option("Folder of private rules (ids start with x-)."),
    click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="ENVDOCTOR_CONFIG",
        help="Configuration file instead of the project's.",
    ),
    click.option("--no-config", is_flag=True, help="Read no configuration file."),
)


def configuration_of(options: dict[str, Any]) -> Configuration:
    """The configuration that applies: the named file, the project's, or none."""
    from envdoctor.app.configuration import find_configuration, load_configuration
    from envdoctor.app.facts import working_directory

    if options["no_config"]:
        return Configuration()
    here = working_directory()
    path = options["config"] or (find_configuration(here) if here else None)
    return load_configuration(path) if path else Configuration()


def matrix_of(configuration: Configuration, options: dict[str, Any]) -> Any:
    """The matrix with the private rules of the configuration and of the command line."""
    from envdoctor.knowledge.matrix import load_matrix

    return load_matrix((*configuration.matrix, *options["matrix"]))


def sources_of(configuration: Configuration, options: dict[str, Any]) -> Any:
    """The sources: command line over environment variables over configuration. A command that lacks an option has
    nothing of it."""
    from envdoctor.app.facts import Sources
    from envdoctor.observe.sources import SOURCES

    named: dict[str, Any] = {name: options.get(name) for name in SOURCES if name != "default"}
    if named["python"] and any(given for name, given in named.items() if name != "python"):
        given = click.get_current_context().get_parameter_source("python")
        if given is click.core.ParameterSource.ENVIRONMENT:
            named["python"] = None
    return Sources(
        **named,
        target=next(iter(stated_targets(options)), {}),
        as_of=options.get("as_of"),
        resolve=options.get("resolve", False),
        model=options["model"] if options.get("model") is not None else configuration.model,
        recipe=options.get("recipe") or tuple(_near(path) for path in configuration.recipe),
        code=options.get("code") or tuple(_near(path) for path in configuration.code),
        assignments=options["assignments"],
        configured=configuration.assignments,
        configured_in=configuration.path.name if configuration.path else "configuration",
        gpu=not options["no_gpu"],
        hash=options.get("hash", False),
        cache=not options.get("no_cache", False),
    )


def stated_targets(options: dict[str, Any]) -> list[Any]:
    """The machines that are meant: what was typed behind ``--target-``, each combination."""
    from envdoctor.app.targets import targets_of

    typed = {name: options.get(f"target_{name}") or () for name in ("python", "platform", "gpu", "driver")}
    split = {name: [one.strip() for text in texts for one in text.split(",")] for name, texts in typed.items()}
    return targets_of(split)


def _near(path: Path) -> str:
    """A path of the configuration as the user would type it here."""
    from envdoctor.app.facts import working_directory

    here = working_directory()
    return str(path.relative_to(here)) if here is not None and path.is_relative_to(here) else str(path)
