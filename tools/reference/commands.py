"""The reference page of the command line, generated from the commands.

    python -m tools.reference.commands docs/reference

writes `commands.md` there: each command as `--help` shows it, with its options in a table. Options that every command
has are documented once.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import click

from haulout.cli.entry import haulout

PAGE = "commands.md"

_INTRODUCTION = """\
# Commands

<!-- made by `make docs` from the commands: edit those -->

These are all commands of `haulout` with all their options, as `haulout COMMAND --help` shows them. A command with a
page of its own is described there in more detail. See also the [environment variables](environment.md).
"""
_NO_REWRAP = "\b"
_COMMON_NAMES = ("--verbose", "--help")
_DEFAULT = re.compile(r"\s*\[default: (?P<default>.*?)\]", re.DOTALL)


def page(folder: Path, root: click.Command = haulout) -> str:
    """Return the page in Markdown. `folder` contains it and the pages of single commands."""
    # As on the command line: click caches values from the first context, such as the names of --help.
    context = click.Context(root, info_name="haulout", **root.context_settings)
    lines = [_INTRODUCTION, *_help_text(root), *_common_options(root, context)]
    for command, inner in _commands(root, context):
        lines += _section(command, inner, folder)
    return "\n".join(lines).rstrip("\n") + "\n"


def _commands(parent: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield commands sorted by name, each before its subcommands."""
    for name, command in sorted(getattr(parent, "commands", {}).items()):
        inner = click.Context(command, info_name=name, parent=context)
        yield command, inner
        yield from _commands(command, inner)


def _section(command: click.Command, context: click.Context, folder: Path) -> Iterator[str]:
    yield f"## {context.command_path}\n"
    yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}\n"
    own = folder / f"{context.info_name}.md"
    yield from _help_text(command)
    rows = [
        _row(parameter, context)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and not _is_common(parameter)
    ]
    if rows:
        yield "| option | what | default |"
        yield "| --- | --- | --- |"
        yield from rows
        yield ""
    if own.exists():
        yield f"[More]({own.name}).\n"


def _help_text(command: click.Command) -> Iterator[str]:
    """Yield the lines of the help text; preformatted columns stay preformatted."""
    texts = (inspect.cleandoc(text) for text in (command.help, command.epilog) if text)
    for paragraph in re.split(r"\n\s*\n", "\n\n".join(texts)):
        lines = paragraph.splitlines()
        if lines[0].strip() == _NO_REWRAP:
            yield f"{lines[1].strip()}\n"
            yield indent(dedent("\n".join(lines[2:])), "    ") + "\n"
        else:
            yield " ".join(paragraph.split()) + "\n"


def _common_options(root: click.Command, context: click.Context) -> Iterator[str]:
    yield "All commands have these, and `haulout` itself has `--version`:\n"
    yield "| option | what | default |"
    yield "| --- | --- | --- |"
    yield from (
        _row(parameter, context)
        for parameter in root.get_params(context)
        if isinstance(parameter, click.Option) and _is_common(parameter)
    )
    yield ""


def _is_common(option: click.Option) -> bool:
    return any(name in _COMMON_NAMES for name in option.opts)


def _row(option: click.Option, context: click.Context) -> str:
    names, _ = option.get_help_record(context) or ("", "")
    help_text, extra = option.help or "", option.get_help_extra(context)
    default_match = _DEFAULT.search(help_text)
    default = default_match["default"] if default_match else extra.get("default", "")
    constraint = extra.get("required") or extra.get("range", "")
    return (
        f"| `{_cell(names)}` | {_cell(_DEFAULT.sub('', help_text))} "
        f"| {_cell('; '.join(filter(None, (default, constraint))))} |"
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Write the page into the given folder."""
    if len(arguments) != 1:
        sys.exit("usage: python -m tools.reference.commands FOLDER")
    folder = Path(arguments[0])
    (folder / PAGE).write_text(page(folder), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
