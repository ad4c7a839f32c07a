from . import statistics as statistics
from .intervals import (
    MeanInterval as MeanInterval, groups_alike as groups_alike, interval_note as interval_note,
    interval_of_groups as interval_of_groups, mean_interval as mean_interval,
    students_quantile as students_quantile,
)
from .promises import (
    NoTokenLeft as NoTokenLeft, Promise as Promise, Promises as Promises,
    TextSoFar as TextSoFar,
    both_sides as both_sides, changes_with_text as changes_with_text,
    leaves_one_token as leaves_one_token, promised as promised,
    row_promises as row_promises,
)
from .report import (
    ACCEPTANCE_WEIGHT as ACCEPTANCE_WEIGHT, ANY as ANY, NOT_DRIVEN as NOT_DRIVEN, Check as Check,
    Coverage as Coverage, Example as Example, Interval as Interval, Judged as Judged,
    Level as Level, Report as Report, TokenDeviation as TokenDeviation, Violation as Violation,
    above_zero as above_zero, largest_edge as largest_edge, pointed as pointed,
)
from .sentences import (
    ENGINE as ENGINE, FACTS as FACTS, LARGEST_Z as LARGEST_Z, LAWS as LAWS,
    NO_ANSWERS as NO_ANSWERS, PARTS as PARTS, RESTART as RESTART, SINGLE as SINGLE,
    TEXTS as TEXTS, TOKENS as TOKENS, TREES as TREES, all_wrong as all_wrong, carried as carried,
    found as found, listed as listed, power_of_ten as power_of_ten,
    ANSWERS as ANSWERS, CLASSES as CLASSES, CLEAN as CLEAN, EDGE as EDGE, LOSSLESS as LOSSLESS,
    LOSSY as LOSSY, NOT_JUDGED as NOT_JUDGED, NOT_SETTLED as NOT_SETTLED,
    NO_DEVIATION as NO_DEVIATION, TIME_UP as TIME_UP, Bar as Bar, worst_class as worst_class,
)
from .settings import (
    COARSE as COARSE, LEAST_CALLS as LEAST_CALLS, AuditOptions as AuditOptions,
    ErrorRates as ErrorRates, LimitKeywords as LimitKeywords, OptionKeywords as OptionKeywords,
    Options as Options, RateKeywords as RateKeywords, budgeted as budgeted,
    detectable_bias as detectable_bias, options_of as options_of,
    random_checks as random_checks, shared as shared, trials_needed as trials_needed,
    unseen_bias as unseen_bias,
)
from .statistics import oddest as oddest, rate_interval as rate_interval
