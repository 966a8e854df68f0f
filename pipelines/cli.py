"""The command line: ``raydt``, also ``python -m pipelines.cli``.

Results go to stdout, logs and progress to stderr. Exit codes: 0 ok, 1 run failed, 2 bad input or config, 3 guarantee
violated, 130 SIGINT, 143 SIGTERM. Commands import what they need when they run, so that ``--help`` is quick.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
from collections.abc import Sequence
from types import TracebackType

import click

import raydt
from pipelines import commands
from raydt.errors import STORAGE_REMEDIES, RaydtError, shortage
from raydt.messages import escaped, message, one_line
from raydt.parallel import PREPARATION

EPILOG = """\b
Exit codes:
  0    ok
  1    the run failed
  2    bad input or config
  3    a guarantee is violated
  130  interrupted (SIGINT)
  143  terminated (SIGTERM)
"""

#: New objects at which Python looks for garbage. A start makes 200,000 objects that stay; by default Python searches
#: them 289 times, an eighth of a short run. Batches leave no cycles, so that a long run needs no more memory.
_COLLECTED_AT = 300_000

#: Commands of earlier versions, and what to use instead.
_RETIRED = {"warmup": "raydt doctor --compile", "explain": "raydt predict MODEL DATA --explain ROW"}


#: What :meth:`logging.Formatter.formatException` is given.
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class TerminalFormatter(logging.Formatter):
    """Records for a terminal: each is one line, but for its traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the line of a record."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 (logging's name)
        """Return its traceback."""
        return escaped(super().formatException(ei), keep="\n")


def _lines(error: RaydtError) -> str:
    """Return the lines of an error for stderr."""
    return "\n".join(map(one_line, error.lines))


def _compiles() -> None:
    """Have a command that shows no progress say that it compiles kernels, when it begins to."""
    from pipelines.display import reporter

    reporter()
    PREPARATION.heard()


class _Group(click.Group):
    """The commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; a retired one is refused with what to use instead."""
        if cmd_name in _RETIRED:
            raise click.UsageError(message("commands.retired", command=cmd_name, instead=_RETIRED[cmd_name]), ctx)
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG
)
@click.version_option(raydt.__version__, prog_name="raydt")
@click.option("-v", "--verbose", is_flag=True, help="Show log messages on stderr.")
def cli(verbose: bool) -> None:
    """Decision trees on Ray that stay correct while training examples are inserted and deleted.

    \b
    First steps:  raydt demo --out runs/demo
                  raydt train runs/demo/config.yaml --out runs/trained
                  raydt audit runs/demo
    """
    # The level is the handler's: a run sets the loggers to INFO for its own log.jsonl.
    shown = logging.StreamHandler(sys.stderr)
    shown.setLevel(logging.INFO if verbose else logging.WARNING)
    # main() reports the error that ends a command, once; its traceback is in log.jsonl.
    shown.addFilter(lambda record: verbose or record.exc_info is None)
    shown.setFormatter(TerminalFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(handlers=[shown])
    PREPARATION.heard = _compiles


for _name in (
    *("demo", "train", "replay", "follow", "resume", "sweep"),
    *("predict", "serve", "export", "value", "update", "purge"),
    *("audit", "verify", "report", "validate", "doctor"),
):
    cli.add_command(getattr(commands, _name))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; without ``arguments``, the command line of this process."""
    if arguments is None:
        gc.set_threshold(_COLLECTED_AT)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: a name never ends a command
    try:
        code = cli.main(args=arguments, prog_name="raydt", standalone_mode=False)
    except click.ClickException as error:
        vars(error)["message"] = one_line(error.message)
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except SystemExit as ended:  # a signal with nothing to save, or a second signal
        click.echo("interrupted" if ended.code == 130 else "terminated", err=True)
        code = ended.code
    except RaydtError as error:
        click.echo(f"error: {_lines(error)}", err=True)
        if error.kept:
            click.echo(f"kept: {one_line(error.kept)}", err=True)
        code = error.exit_code
    except UnicodeEncodeError as error:  # pages and tables are UTF-8, so that only names of files are left
        used = sys.getfilesystemencoding()
        said = "commands.file_name" if used == "utf-8" else "commands.locale_name"
        click.echo(f"error: {one_line(message(said, name=error.object, encoding=used))}", err=True)
        code = 2
    except (MemoryError, OSError) as error:  # the machine or the storage failed, not the program
        short = shortage(error)
        if short is None and getattr(error, "errno", None) not in STORAGE_REMEDIES:
            raise
        text = _lines(short) if short else f"{one_line(str(error))}. {STORAGE_REMEDIES[getattr(error, 'errno', 0)]}"
        click.echo(f"error: {text}", err=True)
        code = 1
    if arguments is None and code in (130, 143):
        # Nothing is left to do, and the sender of the signal should not wait for a slow interpreter shutdown.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
