"""One file a verb: its options, and what it shows."""
