"""One module per layer: its probes and a pure parse into a frozen dataclass."""
