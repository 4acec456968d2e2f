"""The root of the commands: every way to end, turned into an exit code and a message."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from trainplan.collecting import fewer_collections, no_collection_at_exit

UNEXPECTED, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141

STATUSES = {
    UNEXPECTED: "error",
    BAD_INPUT: "bad-input",
    3: "infeasible",
    4: "no-answer",
    INTERRUPTED: "interrupted",
}


class Interrupted(Exception):
    """Ctrl-C while a command ran; an ordinary exception, which typer passes on."""


class Commands(TyperGroup):
    """A command group that never ends in a traceback.

    Exit codes: 0 answer found, 1 unexpected, 2 bad input, 3 infeasible, 4 no proven answer in the time
    limit, 130 interrupted. With ``--json`` a failure is a JSON object on stdout, else text on stderr.
    ``TRAINPLAN_DEBUG=1`` shows the traceback of an unexpected error.
    """

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command that ``args`` names and leave by ``sys.exit``."""
        from trainplan.cli.output import make_streams_safe

        make_streams_safe()
        no_collection_at_exit()
        words = list(sys.argv[1:] if args is None else args)
        options["standalone_mode"] = False
        try:
            with fewer_collections():
                result = super().main(words, *rest, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            _leave_closed_pipe()
        except Exception as error:
            sys.exit(_fail(error, as_json="--json" in words))
        sys.exit(result if isinstance(result, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; typer has its own, wordless ends for what is caught here."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except BrokenPipeError:
            _leave_closed_pipe()


def _leave_closed_pipe() -> NoReturn:
    """End as a program killed by SIGPIPE does, without Python's complaint at shutdown."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(CLOSED_PIPE)


def _fail(error: Exception, *, as_json: bool) -> int:
    """Print what went wrong and return the exit code."""
    code = _exit_code(error)
    if code == UNEXPECTED and os.environ.get("TRAINPLAN_DEBUG") == "1":
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if as_json:
        from trainplan.cli.output import print_json

        print_json({"status": STATUSES.get(code, "error"), **_as_record(error)})
        sys.stdout.flush()
    else:
        sys.stderr.write(_as_text(error) + "\n")
    return code


def _exit_code(error: Exception) -> int:
    from trainplan_models.base import TrainplanError

    if isinstance(error, TrainplanError):
        return error.exit_code
    if isinstance(error, (Interrupted, typer.Abort)):
        return INTERRUPTED
    if isinstance(error, typer.TyperException):
        return BAD_INPUT
    return UNEXPECTED


def _as_record(error: Exception) -> dict[str, Any]:
    """The failure for programs: its problems and, where there is one, the explanation."""
    from dataclasses import asdict

    from trainplan_models.base import InfeasibleError, InputError, Problem

    if isinstance(error, InputError):
        return {"problems": [asdict(problem) for problem in error.problems]}
    record: dict[str, Any] = {"problems": [asdict(Problem(message=_as_text(error)))]}
    if isinstance(error, InfeasibleError):
        record |= {"explanation": error.explanation, **error.details}
    return record


def _as_text(error: Exception) -> str:
    """The failure for people."""
    from trainplan_models.base import InfeasibleError, TrainplanError

    if isinstance(error, InfeasibleError):
        return error.explanation or str(error)
    if isinstance(error, TrainplanError):
        return str(error)
    if isinstance(error, (Interrupted, typer.Abort)):
        return "interrupted"
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = f" See '{context.command_path} --help'" if context is not None else ""
        return f"{error.format_message().rstrip('.')}.{hint}"
    words = " ".join(str(error).split())
    return f"unexpected {type(error).__name__}: {words}. Set TRAINPLAN_DEBUG=1 to see where"
