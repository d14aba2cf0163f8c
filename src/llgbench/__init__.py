"""llgbench: what constrained decoding costs, with a verdict beside every time."""

__version__ = "0.1.0"
