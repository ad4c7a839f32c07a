"""Functions of installed engines, as callables that an audit takes."""

from mdsd_opt.auditing.engines.engine import Engine
from mdsd_opt.auditing.engines.registry import EngineAudit, audit_engine, get, names, takes_long

__all__ = ["Engine", "EngineAudit", "audit_engine", "get", "names", "takes_long"]
