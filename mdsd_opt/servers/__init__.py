"""Audits of servers that run: is one lossless, in whatever language it is written?

Its tokens are held against the laws that it states, and these against the laws of the same server
without speculation. `mdsd_opt.audit_server` asks a server; `mdsd_opt.audit_tokens` reads texts and
laws that were recorded. An API is one file in `adapters`.
"""

from mdsd_opt.servers.laws import Law
from mdsd_opt.servers.report import Measured, ServerReport
from mdsd_opt.servers.server_audit import audit_server
from mdsd_opt.servers.token_audit import audit_tokens

__all__ = ["Law", "Measured", "ServerReport", "audit_server", "audit_tokens"]
