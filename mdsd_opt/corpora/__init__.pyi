from . import capture as capture, reproduce as reproduce
from .capture import read_prompts as read_prompts
from .engine_output import (
    AcceptedRate as AcceptedRate, RateIntervals as RateIntervals,
    accepted_rates as accepted_rates, accepted_table as accepted_table,
    intervals_conclusion as intervals_conclusion, intervals_table as intervals_table,
    rate_intervals as rate_intervals, rate_of_counts as rate_of_counts,
)
from .executors import EXECUTORS as EXECUTORS, rank as rank
from .sample_rates import (
    RateRow as RateRow, combinations as combinations, rate_rows as rate_rows,
    rates_by_position as rates_by_position, rates_conclusion as rates_conclusion,
    rates_table as rates_table, refusals as refusals,
)
from .reproduce import (
    PUBLISHED_COLUMNS as PUBLISHED_COLUMNS, Agreement as Agreement, Reproduction as Reproduction,
    check_source as check_source, published_row as published_row,
)
from .shards import (
    Corpus as Corpus, RatesConfig as RatesConfig, open_corpus as open_corpus,
    score_shard as score_shard,
)
from .sums import (
    CorpusSummary as CorpusSummary, corpus_rates as corpus_rates, results_of as results_of,
    score_corpus as score_corpus,
)
