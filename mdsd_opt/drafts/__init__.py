"""Draft schemes: the joint law of the K tokens a draft model proposes."""

from mdsd_opt.drafts.base import DraftScheme, PrefixDraftScheme
from mdsd_opt.drafts.by_name import SINGLE_MODEL_SCHEMES, register
from mdsd_opt.drafts.fixed_set import FixedPlusDrafts, GreedyDrafts, TopKDrafts
from mdsd_opt.drafts.independent import IndependentDrafts
from mdsd_opt.drafts.mixture import MixtureDrafts
from mdsd_opt.drafts.sequential import SequentialDrafts
from mdsd_opt.drafts.set_law import DraftSetLaw
from mdsd_opt.drafts.support_law import SupportLaw
from mdsd_opt.drafts.with_replacement import WithReplacement
from mdsd_opt.drafts.without_replacement import WithoutReplacement

__all__ = [
    "SINGLE_MODEL_SCHEMES",
    "DraftScheme",
    "DraftSetLaw",
    "FixedPlusDrafts",
    "GreedyDrafts",
    "IndependentDrafts",
    "MixtureDrafts",
    "PrefixDraftScheme",
    "SequentialDrafts",
    "SupportLaw",
    "TopKDrafts",
    "WithReplacement",
    "WithoutReplacement",
    "register",
]
