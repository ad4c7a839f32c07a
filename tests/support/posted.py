"""Post as curl does: an address, -H for each header, -d for the body; the answer goes to stdout."""

import sys
from urllib.request import Request, urlopen

url, *rest = sys.argv[1:]
given = [*zip(rest[::2], rest[1::2], strict=True)]
headers = dict(value.split(": ", 1) for name, value in given if name == "-H")
(body,) = (value for name, value in given if name == "-d")
with urlopen(Request(url, body.encode(), headers), timeout=30) as answer:
    sys.stdout.write(answer.read().decode())
