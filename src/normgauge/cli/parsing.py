"""The parser of the command line: help that fits its lines, mistakes told on one line with the name that was meant."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from normgauge.cli.output import write_text
from normgauge.core.answers import nearest
from normgauge.render.markup import clean

FILES = {"FILE", "DIR", "CONFIG", "RUN", "MODEL", "B", "BATCH"}  # what a shell completes with names of files
COMMAND = re.compile(r"(  normgauge .*?\S)(?:  +(\S.*))?$")  # an example, and what it does
ROW = re.compile(r" *\S+(?: \S+)*  +(?=\S)")  # a word in the first column of two
HANGING = " " * 6


class Help(argparse.HelpFormatter):
    """Help in which paragraphs are filled and indented lines stay lines, none of them longer than the screen."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = re.split(r"\n(?=[ \n])|(?<=\n)\n", text.strip("\n"))
        return "\n".join(line for block in blocks for line in block_lines(block, width))


def block_lines(block: str, width: int) -> Iterator[str]:
    """The lines of a paragraph, filled; of an indented line, wrapped only where it is too long.

    >>> list(block_lines("  normgauge demo   what it does", 20))
    ['  normgauge demo', '      what it does']
    """
    first, *rest = block.split("\n")
    if not first.startswith(" "):
        yield from textwrap.wrap(" ".join([first, *rest]), width) or [""]
        return
    for line in (first, *rest):
        example = COMMAND.match(line)
        if len(line) <= width:
            yield line
        elif example is None:
            begin = ROW.match(line)
            hanging = " " * (len(begin[0]) if begin else len(line) - len(line.lstrip()))
            yield from textwrap.wrap(line, width, subsequent_indent=hanging, drop_whitespace=True)
        else:
            parts = textwrap.wrap(
                example[1].strip(), width - 2, initial_indent="  ", subsequent_indent=HANGING, break_on_hyphens=False
            )
            yield from (f"{part} \\" for part in parts[:-1])
            yield parts[-1]
            yield from textwrap.wrap(example[2] or "", width, initial_indent=HANGING, subsequent_indent=HANGING)


class Parser(argparse.ArgumentParser):
    """An argument parser that keeps to the exit codes: a mistake is 1 and takes one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": Help, **kwargs})

    def error(self, message: str) -> NoReturn:
        """End with one line on standard error."""
        self.exit(1, f"{self.prog}: {clean(message)} (see {self.prog} --help)\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the arguments; for an option there is not, name the nearest of the command.

        What stands alone behind an option belongs to the list that stands alone before it, as in ``A --label X B``.
        """
        found, left = self.parse_known_args(args, namespace)
        owner: Parser = getattr(found, "parser", self)
        unknown = next((word for word in left if word.startswith("-")), "")
        listed = next((a for a in owner._actions if not a.option_strings and a.nargs in ("+", "*")), None)
        if left and not unknown and listed is not None and listed.choices is None and listed.type is None:
            getattr(found, listed.dest).extend(left)
        elif left:
            near = nearest((unknown or left[0]).partition("=")[0], owner._option_string_actions)
            wrong = left[left.index(unknown) :] if unknown and listed is not None else left
            owner.error(f"unrecognized arguments: {' '.join(wrong)}" + (f"; did you mean {near}?" if near else ""))
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        near = nearest(str(value), map(str, action.choices))
        choices = ", ".join(map(str, action.choices))
        told = f"did you mean {near}?" if near else f"choose from {choices}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {told}")


class Commands(Parser):
    """The parser of all commands; its help has them by group.

    Attributes:
        groups: the commands of each group with a line of help each.
    """

    groups: Mapping[str, Mapping[str, str]]

    def format_help(self) -> str:
        """Usage, commands by group, options, first steps."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        formatter.add_usage("normgauge COMMAND ...", [], [], "usage: ")
        column = max(len(name) for commands in self.groups.values() for name in commands) + 4
        for title, commands in self.groups.items():
            rows = (f"  {name.ljust(column - 2)}{told}" for name, told in commands.items())
            formatter.add_text("\n".join([f"{title}:", *rows]))
        formatter.add_text("\n".join(["options:", *self._option_rows()]))
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _option_rows(self) -> Iterator[str]:
        options = [action for action in self._actions if action.option_strings]
        names = [f"{', '.join(o.option_strings)} {o.metavar or ''}".strip() for o in options]
        for name, option in zip(names, options, strict=True):
            yield f"  {name.ljust(max(map(len, names)))}  {option.help}"


class PrintCompletion(argparse.Action):
    """Prints what a shell needs to complete the commands, by shtab."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Print it and end."""
        try:
            import shtab
        except ImportError:
            parser.error("completion needs shtab: pip install 'normgauge[completion]'")
        for known in (parser, *subparsers(parser)):
            for action in known._actions:
                if action.metavar in FILES:
                    action.complete = shtab.FILE  # type: ignore[attr-defined]
        write_text(shtab.complete(parser, str(values)) + "\n", "-")
        parser.exit()


def subparsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of a parser's commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()
