from .answer import Answer as Answer
from .checks import Contradiction as Contradiction, Told as Told, counts_of as counts_of
from .counts import (
    DEEPEST as DEEPEST, AcceptedCounts as AcceptedCounts, Measured as Measured,
    Passes as Passes, Speed as Speed, in_stretches as in_stretches, of_steps as of_steps,
    with_groups as with_groups,
)
from .prometheus import counters_in as counters_in
from .reading import (
    Format as Format, Run as Run, answers_of as answers_of, formats as formats,
    read_answers as read_answers, read_counts as read_counts, read_run as read_run,
    read_steps as read_steps, scored as scored, summary as summary,
)
