from .scheme import (
    DraftScheme as DraftScheme, PrefixDraftScheme as PrefixDraftScheme,
    checked_draft_scheme as checked_draft_scheme, checked_num_drafts as checked_num_drafts,
    first_beyond as first_beyond, tokens_at as tokens_at,
)
from .by_name import (
    SINGLE_MODEL_SCHEMES as SINGLE_MODEL_SCHEMES, SchemeMaker as SchemeMaker,
    all_schemes as all_schemes, batch_maker as batch_maker, checked_scheme as checked_scheme,
    composition_of as composition_of, has_many_models as has_many_models, register as register,
    scheme_maker as scheme_maker, title_of as title_of,
)
from .support_law import (
    count_power as count_power, readable as readable, require_exact as require_exact,
    require_short_powers as require_short_powers,
)
from .fixed_set import (
    FixedPlusDrafts as FixedPlusDrafts, FixedSetDrafts as FixedSetDrafts,
    GreedyDrafts as GreedyDrafts, TopKDrafts as TopKDrafts, split_fixed as split_fixed,
)
from .inclusion import (
    inclusion_masses as inclusion_masses, inclusion_probabilities as inclusion_probabilities,
    sum_of_others as sum_of_others,
)
from .independent import IndependentDrafts as IndependentDrafts
from .mixture import MixtureDrafts as MixtureDrafts
from .product_form import ProductForm as ProductForm, product_form as product_form
from .set_law import SequentialDrafts as SequentialDrafts
from .set_law import DraftSetLaw as DraftSetLaw
from .scheme import Composition as Composition, SingleModelDrafts as SingleModelDrafts
from .support_law import SupportLaw as SupportLaw
from .with_replacement import WithReplacement as WithReplacement
from .without_replacement import WithoutReplacement as WithoutReplacement
