"""Audits of functions that draft, verify and keep state by themselves: are their texts right?"""
