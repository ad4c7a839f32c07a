"""Functions of installed engines, as callables that an audit takes."""

from mdsd_opt.auditing.engines.engine import Adapter, Engine
from mdsd_opt.auditing.engines.registry import EngineAudit, audit_engine, get, names, takes_long

__all__ = ["Adapter", "Engine", "EngineAudit", "audit_engine", "get", "names", "takes_long"]
