"""Language models of the transformers library (extra `models`)."""
