"""Does speculation pay, and with which drafts? Forecasts from rates or counts, and costs.

Data flows: logits, a corpus or two models -> `position_rates` -> `tree_forecasts` and `costs` ->
`advice`; logs of engines -> `engine_logs` -> `counts` -> `count_forecasts` -> `count_advice`, with
`policies` -> `engine_flags`. `cost_measurements` times passes for `costs_file`; `draft_choice` and
`draft_temperature` tell which of several drafts is best.
"""
