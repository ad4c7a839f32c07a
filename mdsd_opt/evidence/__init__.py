"""Evidence of audits and measurements: what was looked at, what it shows, what may stay hidden.

`settings` are the options of all audits; `statistics` and `intervals` are tests and bounds;
`promises` are laws that a function says it follows; a `report` says what was found.
"""
