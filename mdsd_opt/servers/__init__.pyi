from .connection import Connection as Connection, Refused as Refused
from .laws import Law as Law
from .report import BetsOutcome as BetsOutcome, ServerReport as ServerReport
from .server_audit import audit_server as audit_server
from .token_audit import audit_tokens as audit_tokens
