"""Command line: results go to stdout, progress and warnings to stderr.

Exit codes: 0 fine, 1 a negative verdict, 2 bad input with one clear line, 3 undecided.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from mdsd_opt._version import __version__


def main() -> None:
    """Run the command line; errors that are the user's to mend end in one line, not a traceback."""
    _open_what_is_closed()
    from mdsd_opt.errors import MdsdError

    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a sign shows a "?"
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        if sys.argv[1:] == ["--version"]:  # which needs nothing of what is imported below
            print(f"mdsd-opt {__version__}", flush=True)
            return
        from mdsd_opt.base.long_runs import expect_kernels, waiting
        from mdsd_opt.cli.output import warnings_as_remarks
        from mdsd_opt.cli.verbs import KERNELS, app

        try:
            verb = " ".join(sys.argv[1:2])
            expect_kernels(KERNELS.get(verb, ()))
            with waiting(verb), warnings_as_remarks():
                app(prog_name="mdsd-opt")
        finally:
            if not sys.stdout.closed:  # a disk that is full shows before the exit code is settled
                sys.stdout.flush()
    except MdsdError as error:
        _fail(error)
    except KeyboardInterrupt:
        print("mdsd-opt: interrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if end.code == 130:  # typer's own handling of Ctrl-C, which says nothing
            print("mdsd-opt: interrupted", file=sys.stderr)
        # typer's way where the reader has gone has the exit code of a negative verdict
        if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            sys.exit(141)
        raise
    except BrokenPipeError:  # the reader (head, less) has gone
        _discard_output()
        sys.exit(141)
    except OSError as error:
        _discard_output()
        name = f"{_shortened(error.filename)}: " if error.filename is not None else ""
        _fail(f"the system says: {name}{error.strerror or error}")
    except MemoryError:
        _fail("out of memory: try a smaller problem or batch")
    except RecursionError:
        _fail("nested too deeply: try a smaller problem or a flatter file")
    except ArithmeticError as error:
        _fail(f"numbers beyond floating point: {error}. Try smaller sizes or milder options.")


def _open_what_is_closed() -> None:
    """Redirect streams that the caller has closed (``>&-``) to nowhere.

    Python leaves None in their place, whereupon `print` writes errors among the results, and the
    next file that is opened gets a stream's number, and what libraries and children write to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: the stream's
            os.set_inheritable(nowhere, True)
            setattr(sys, name, os.fdopen(nowhere, mode))


def _fail(problem: object) -> None:
    with suppress(OSError, ValueError):  # stderr may be closed
        print(f"mdsd-opt: error: {problem}", file=sys.stderr)
    sys.exit(2)


def _discard_output() -> None:
    """Discard the rest of the buffer: a second attempt at exit would fail once more."""
    with suppress(OSError, ValueError):  # stdout need not be a file of the system
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _shortened(name: object) -> str:
    text = os.fsdecode(name) if isinstance(name, bytes | os.PathLike) else str(name)
    return text if len(text) <= 200 else f"{text[:80]}...{text[-80:]} ({len(text):,} characters)"
