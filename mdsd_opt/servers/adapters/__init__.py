"""APIs of servers: each file defines one as ADAPTER, and is found by that name."""
