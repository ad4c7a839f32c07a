"""APIs of servers: each file has one, under the name ADAPTER, and is found by that."""
