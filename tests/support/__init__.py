"""Helpers shared by the tests: strategies that draw problems, and oracles that solve small ones."""
