"""Audits of servers that run: is one lossless, in whatever language it is written?

Its tokens are held against the laws that it states, and these against the laws of the same server
without speculation. `mdsd_opt.audit_server` asks a server; `mdsd_opt.audit_tokens` reads texts and
laws that were recorded. A file with `ADAPTERS` reads an API, by what `adapter` asks of it, over a
`connection`; what was read goes into a `log`. `tally` has the evidence of tokens under the `laws`
that a server states, on which `wealth` bets, and `server_report` tells it.
"""

import lazy_loader

__all__ = ["BetsOutcome", "Law", "ServerReport", "audit_server", "audit_tokens"]

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
