"""What audits of rules for trees consist of: the rule on its laws, its judgement, the report."""
