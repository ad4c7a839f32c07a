"""The command line: results to stdout, progress and warnings to stderr.

Exit codes: 0 fine, 1 a negative verdict, 2 bad input with one clear line, 3 undecided.
"""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command line; errors that are the user's to mend end in one line, not a traceback."""
    from mdsd_opt.cli.app import app
    from mdsd_opt.errors import MdsdError

    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show a sign shows a "?"
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except MdsdError as error:
        print(f"mdsd-opt: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("mdsd-opt: interrupted", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if end.code == 130:  # typer's own handling of Ctrl-C, which says nothing
            print("mdsd-opt: interrupted", file=sys.stderr)
        raise
    except BrokenPipeError:  # the reader (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except MemoryError:
        print("mdsd-opt: error: out of memory: try a smaller problem or batch", file=sys.stderr)
        sys.exit(2)
