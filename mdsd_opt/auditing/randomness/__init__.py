"""Random numbers of an engine: seeded, or answered by the audit one by one."""
