"""Results in, text out: one module per form."""
