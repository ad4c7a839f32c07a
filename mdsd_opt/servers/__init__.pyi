from .laws import Law as Law
from .server_report import BETS as BETS, BetsOutcome as BetsOutcome, ServerReport as ServerReport
from .server_audit import audit_server as audit_server
from .token_audit import audit_tokens as audit_tokens
from .wealth import (
    Bets as Bets, Shown as Shown, detectable_distance as detectable_distance,
)
