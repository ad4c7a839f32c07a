from . import race_kernels as race_kernels
from .batch_rates import (
    BatchRates as BatchRates, RowFunction as RowFunction, greedy_rates as greedy_rates,
    top_k_rates as top_k_rates, with_replacement_rates as with_replacement_rates,
    without_replacement_rates as without_replacement_rates,
)
from .bins import (
    HALF as HALF, NUM_BINS as NUM_BINS, BinGroups as BinGroups, Bins as Bins,
    groups_of as groups_of, ratios_at as ratios_at, steps_of as steps_of,
)
from .bucket_kernels import octave_keys as octave_keys, power as power, row_table as row_table
from .cut_search import (
    CutSearch as CutSearch, best_cut as best_cut, bucket_sums as bucket_sums,
    contained_in as contained_in, lower_bound as lower_bound, ratio_buckets as ratio_buckets,
    ratio_keys as ratio_keys, upper_bound as upper_bound,
)
from .race import RaceSums as RaceSums, race_sums_of_row as race_sums_of_row
from .race_group_kernels import COLUMNS as COLUMNS, MOMENT as MOMENT
from .race_kernels import MOMENTS as MOMENTS, lightness as lightness, most_heavy as most_heavy
from .random_draws import (
    FEW_TOKENS as FEW_TOKENS, RandomDraws as RandomDraws, is_searchable as is_searchable,
    require_race as require_race, saves_sorting as saves_sorting,
)
from .ratio_groups_kernels import (
    BUCKET as BUCKET, CONTAINED as CONTAINED, EDGES as EDGES, MAX_TOKENS as MAX_TOKENS,
    NEVER_DRAFTED as NEVER_DRAFTED, NUM_BUCKETS as NUM_BUCKETS, P as P, Q as Q, RATIO as RATIO,
    RATIO_ERROR as RATIO_ERROR, fill_buckets as fill_buckets,
    lowest_in_group as lowest_in_group, sum_buckets as sum_buckets,
)
from .sum_kernels import (
    BLOCK as BLOCK, accurate_sum as accurate_sum, add_carrying as add_carrying,
    block_sum as block_sum, pool as pool, pool_falling as pool_falling, split_at as split_at,
    suffix_sums as suffix_sums,
)
from .weigh_kernels import (
    decode_halves as decode_halves, drop_impossible as drop_impossible,
    likeliest_tokens as likeliest_tokens, weigh_row as weigh_row,
)
