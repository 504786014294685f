"""Options that several commands share, and how they become sources and settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from envdoctor.app.configuration import Configuration

__all__ = [
    "code_option",
    "configuration_of",
    "configuration_options",
    "environment_options",
    "hash_option",
    "hub_options",
    "recipe_option",
    "source_options",
    "sources_of",
    "stated_targets",
    "target_options",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def environment_options(function: Function) -> Function:
    """Which environment."""
    for option in reversed(
        [
            click.option(
                "--python",
                metavar="PATH",
                envvar="ENVDOCTOR_PYTHON",
                help="Interpreter (or virtual environment) to judge.",
            ),
            click.option("--path", metavar="DIR", help="Folder of installed packages (pip install --target)."),
            click.option("--root", metavar="DIR", help="Root file system of an image or container."),
            click.option("--image", metavar="FILE", help="Image in a file: docker save, OCI archive; read, not run."),
            click.option(
                "--lock",
                metavar="FILE",
                help="Lock or requirements, before they are installed; FILE[NAME,...] chooses extras.",
            ),
            click.option("--sbom", metavar="FILE", help="Bill of materials: CycloneDX or SPDX in JSON."),
            click.option(
                "--facts", metavar="FILE", help="Facts file, written by `envdoctor facts`; - is standard input."
            ),
            click.option(
                "--report", metavar="FILE", help="Pasted report: env commands, pip list, prose; - is standard input."
            ),
            click.option(
                "--set",
                "assignments",
                metavar="KEY=VALUE",
                multiple=True,
                help="A fact, e.g. recipe.batch_size=2 (repeatable; the last one wins).",
            ),
            click.option("--no-gpu", is_flag=True, help="Do not ask the driver about GPUs."),
            click.option(
                "--no-cache",
                is_flag=True,
                help="Neither read nor write envdoctor's cache (tensor headers; what compiled files ask for).",
            ),
        ]
    ):
        function = option(function)
    return function


def source_options(function: Function) -> Function:
    """Which environment and which model."""
    return environment_options(
        click.option("--model", metavar="REPO|DIR", envvar="ENVDOCTOR_MODEL", help="Model: ORG/NAME or a folder.")(
            function
        )
    )


def target_options(function: Function) -> Function:
    """For which machines: what nobody can read from a lock. Each option may name several."""
    for name, metavar, text in reversed(
        [
            ("python", "VERSION", "Judge for this Python: 3.11."),
            ("platform", "SYSTEM-ARCH", "Judge for this system: linux-x86_64."),
            ("gpu", "NAME", "Judge for this GPU: A100; none: for the CPU."),
            ("driver", "VERSION", "Judge for this NVIDIA driver: 535."),
        ]
    ):
        text = f"{text} (repeatable, or 'A,B': judges each)" if name == "python" else text
        function = click.option(f"--target-{name}", metavar=metavar, multiple=True, help=text)(function)
    return function


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


def hub_options(function: Function) -> Function:
    """How far the Hub may be asked."""
    for option in reversed(
        [
            click.option("--offline", is_flag=True, help="Only the local cache and folders."),
            click.option(
                "--timeout",
                type=click.FloatRange(1, 3600),
                metavar="SECONDS",
                default=60,
                show_default=True,
                help="For everything that is asked of the Hub.",
            ),
        ]
    ):
        function = option(function)
    return function


def configuration_options(function: Function) -> Function:
    """Which configuration and which private rules."""
    for option in reversed(
        [
            click.option(
                "--matrix",
                metavar="DIR",
                multiple=True,
                type=click.Path(path_type=Path),
                help="Folder of private rules (ids start with x-).",
            ),
            click.option(
                "--config",
                metavar="FILE",
                type=click.Path(path_type=Path),
                envvar="ENVDOCTOR_CONFIG",
                help="Configuration file instead of the project's.",
            ),
            click.option("--no-config", is_flag=True, help="Read no configuration file."),
        ]
    ):
        function = option(function)
    return function


def configuration_of(config: Path | None, no_config: bool) -> Configuration:
    """The configuration that applies: the named file, the project's, or none."""
    from envdoctor.app.configuration import find_configuration, load_configuration
    from envdoctor.app.facts import working_directory

    if no_config:
        return Configuration()
    here = working_directory()
    path = config or (find_configuration(here) if here else None)
    return load_configuration(path) if path else Configuration()


def sources_of(configuration: Configuration, options: dict[str, Any]) -> Any:
    """The sources: command line over environment variables over configuration."""
    from envdoctor.app.facts import Sources
    from envdoctor.observe.sources import SOURCES

    python = options["python"]
    if python and any(options.get(name) for name in SOURCES if name != "python"):
        given = click.get_current_context().get_parameter_source("python")
        if given is click.core.ParameterSource.ENVIRONMENT:
            python = None
    return Sources(
        python=python,
        path=options["path"],
        root=options["root"],
        image=options.get("image"),
        lock=options.get("lock"),
        sbom=options.get("sbom"),
        facts=options["facts"],
        report=options.get("report"),
        target=next(iter(stated_targets(options)), {}),
        model=options["model"] if options.get("model") is not None else configuration.model,
        recipe=options.get("recipe") or tuple(_near(path) for path in configuration.recipe),
        code=options.get("code") or tuple(_near(path) for path in configuration.code),
        assignments=options["assignments"],
        configured=configuration.assignments,
        configured_in=configuration.path.name if configuration.path else "configuration",
        gpu=not options["no_gpu"],
        hash=options.get("hash", False),
        cache=not options["no_cache"],
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
