"""Other engines of constrained decoding beside llguidance: one adapter, judged by one reference."""
