"""Does speculation pay, and with which drafts? Forecasts from rates, and the costs of models.

Data flows: logits, a corpus or two models -> `position_rates` -> `tree_forecasts` and `costs` ->
`advice`; `draft_choice` and `draft_temperature` tell which of several drafts is best.
"""
