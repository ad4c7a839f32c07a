"""Mathematics of trees of drafts: no language model is called here.

Data flows: `topology` (shapes, and what places are worth) and the laws of two models, drawn by
`draft_tree`, go to `rules` (what of a tree is accepted), which give tokens. `token_split` and
`recursive_rejection` are what rules do at a node; `plans` finds the best shape; `optimum`,
`text_tree` and `value_bound` tell what no rule exceeds; `device_laws` are laws that stay on a
device. The public names are those of `mdsd_opt.decoding`.
"""
