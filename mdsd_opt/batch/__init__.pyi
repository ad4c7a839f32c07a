from .plans import DecisionsPlan as DecisionsPlan, RatesPlan as RatesPlan
from .acceptance import acceptance_rates as acceptance_rates
from .relaxed import relaxed_rates as relaxed_rates
from .top_logprobs import (
    AcceptanceInterval as AcceptanceInterval, acceptance_interval as acceptance_interval,
    interval_ends as interval_ends,
)
from .verification import verify_batch as verify_batch
