"""The command line as a whole: its subcommands, and how mistakes are told."""

import errno
import os
import re
import sys
from typing import Annotated

import typer
from rich.console import Console

import idml
from idml.cli.demo import demo
from idml.cli.doctor import doctor
from idml.cli.embed import embed
from idml.cli.evaluate import evaluate
from idml.cli.export import export
from idml.cli.prepare import prepare
from idml.cli.recipes import recipes
from idml.cli.sweep import sweep
from idml.cli.train import train
from idml.errors import is_out_of_memory

MISTAKE, INTERRUPTED = 1, 130  # exit codes; typer's own are 2 for a wrong option and 130 for an interruption

app = typer.Typer(
    name="idml",
    help="Image retrieval that knows when it is not sure (Introspective Deep Metric Learning, TPAMI 2023).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for _command in (demo, prepare, recipes, train, sweep, evaluate, embed, export, doctor):
    app.command()(_command)


def _show_version(is_asked: bool | None) -> None:
    if is_asked:
        typer.echo(f"idml {idml.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool | None,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = None,
) -> None: ...


def main() -> None:
    """Run the command; a user's mistake is one or two lines on standard error, never a traceback."""
    try:
        app()
    except ValueError as mistake:
        _tell(str(mistake), only_once=True)
    except ModuleNotFoundError as missing:
        _tell(f"{missing.name} is not installed: pip install 'idml[all]', or that package.", only_once=True)
    except OSError as failure:
        _tell(_told(failure))
    except (MemoryError, RuntimeError) as failure:
        if not is_out_of_memory(failure):
            raise
        _tell(_what_to_do_about_memory(failure))
    except SystemExit as end:
        if end.code == INTERRUPTED and _is_first_here():
            _errors().print("interrupted: nothing half-written was left behind.")
        raise
    else:
        return
    sys.exit(MISTAKE)


def _tell(words: str, *, only_once: bool = False) -> None:
    """only_once: where torchrun started several processes, all make this mistake, and one tells it."""
    if _is_first_here() or not only_once:
        _errors().print(f"[bold red]error:[/] {_escaped(words)}")


def _errors() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def _is_first_here() -> bool:
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _what_to_do_about_memory(failure: MemoryError | RuntimeError) -> str:
    asked = re.search(r"tried to allocate ([\d.]+ \w+)", str(failure), re.IGNORECASE)
    more = f", for {asked[1]} more" if asked else ""
    return f"there is not enough memory{more}: in training, lower batch, or set cached_chunk (--set cached_chunk=16)."


def _told(failure: OSError) -> str:
    remedy = {
        errno.ENOSPC: "The disk is full: free some space, or write elsewhere with --output.",
        errno.EACCES: "You may not write or read there: choose another place with --output.",
        errno.EEXIST: "A file is in the way: choose another place with --output.",
        errno.ENOTDIR: "A file is in the way: choose another place with --output.",
        errno.EROFS: "That place is read-only: choose another one with --output.",
    }.get(failure.errno or 0, "")
    where = f" ({failure.filename})" if failure.filename else ""
    return f"{failure.strerror or failure}{where}. {remedy}".strip()


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
