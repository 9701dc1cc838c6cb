"""The command line: finds the verb, runs it, and turns its end into an exit code (tierd/base/exits.py).

A verb is the module of its name (`-` as `_`) in this package, imported only when it is asked for.
"""

import importlib
import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import click

from tierd import __version__
from tierd.base.errors import TierdError
from tierd.base.exits import Exit, exit_of
from tierd.cli.client import Refused

VERBS = {
    "serve": "Run the daemon.",
    "status": "Show where each partition's data lies.",
    "why": "Say why a segment is not copied, or is still there.",
    "copy": "Copy to the bucket all that may be copied now.",
    "pause": "Hold all copies to the bucket; reads go on.",
    "resume": "Go on copying after a pause.",
    "evict": "Drop local segments that the bucket has.",
    "sweep": "Delete from the bucket what nobody needs.",
    "retention": "Show what retention will let go, and when.",
    "cost": "Show how much the bucket is used, in money.",
    "plan": "Say what tiering will cost, before it is switched on.",
    "gaps": "Show or accept offsets that the bucket has lost.",
    "verify": "Look whether the bucket still has what it should have.",
    "rebuild": "Make the catalog again from the bucket.",
    "archive": "Serve a bucket as it is, read-only.",
    "restore": "Make the directories of an archive again from its bucket.",
    "import": "Copy log directories of a Kafka into a bucket, without a broker.",
    "export-metadata": "Write what Kafka's remote log metadata needs to go on from a bucket.",
    "keys": "Manage the keys that segments in the bucket are encrypted under.",
    "users": "Manage users and their passwords.",
    "config": "Check or show the settings.",
    "dump": "Print the files of a data directory.",
    "demo": "Show tiering at work, with a directory as the bucket.",
}

MODULES = {"import": "import_logs"}
"""Where the verb is a word of Python's own."""


class VerbGroup(click.Group):
    """Verbs by name, in the order of VERBS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        name = MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        command = getattr(importlib.import_module(f"tierd.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS:
            close = get_close_matches(args[0], VERBS, n=1)
            meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(VERBS)}"
            ctx.fail(f"no verb {args[0]!r}; {meant}")
        return super().resolve_command(ctx, args)


@click.command(cls=VerbGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="tierd %(version)s")
def group() -> None:
    """tierd: Kafka-format logs on local disk, copied to an S3-compatible bucket and served from both.

    Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 something stays pinned, 4 start refused, 5 the bucket does
    not answer.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one verb; give the exit code. What went wrong is on stderr, in one line for wrong arguments; with --json on
    stdout, too: {error, exit}."""
    try:
        code = group.main(args=list(arguments) or ["--help"], prog_name="tierd", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else Exit.DONE
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx is not None else str(error))
        return Exit.DONE
    except click.ClickException as error:
        return _say(_one_line(error), Exit.USAGE, arguments)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return _say("tierd: interrupted", Exit.FAILED, arguments)
    except Refused as error:
        return _say(f"tierd: {error}", error.exit, arguments)
    except TierdError as error:
        return _say(f"tierd: {error}", exit_of(error), arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return Exit.FAILED
    except OSError as error:
        return _say(f"tierd: {error}", Exit.FAILED, arguments)


def _say(text: str, code: int, arguments: Sequence[str]) -> int:
    click.echo(text, err=True)
    if "--json" in arguments and arguments[0] not in ("dump", "serve"):  # a dump is a line of JSON for each entry
        click.echo(json.dumps({"error": text.removeprefix("tierd: "), "exit": int(code)}, indent=2))
    return code


def _one_line(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "tierd"
    text = error.format_message().removesuffix(".")
    if isinstance(error, click.NoSuchOption) and path == "tierd":
        text += "; options follow the verb"
    return f"{path}: {text} (see `{path} --help`)".replace("\n", " ")
