"""Rows, tables and pictures made of results."""
