"""Evidence of audits and measurements: what was looked at, what it shows, what may stay hidden.

`settings` are the options of all audits; `statistics` and `intervals` are tests and bounds;
`promises` are laws that a function says it follows; a `report` says what was found, and
`sentences` have what is concluded from it, and the words of both.
"""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
