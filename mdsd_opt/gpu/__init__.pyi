from . import interop as interop, rates as rates
from .pair import (
    FilterSettings as FilterSettings, Pair as Pair, RowRates as RowRates,
    empty_filters as empty_filters, index_shape as index_shape, with_filters as with_filters,
)
from .philox import Randomness as Randomness, uniforms_of as uniforms_of
from .runtime import (
    CHUNK_BYTES as CHUNK_BYTES, DeviceLogits as DeviceLogits, DeviceRuntime as DeviceRuntime,
    RecordingRuntime as RecordingRuntime, is_available as is_available,
    require_device as require_device, runtime_of_device as runtime_of_device,
    why_unavailable as why_unavailable, work_in_chunks as work_in_chunks,
)
from .verification import (
    DecisionsWork as DecisionsWork, RowTokens as RowTokens, empty_tokens as empty_tokens,
    verify_rows as verify_rows,
)
