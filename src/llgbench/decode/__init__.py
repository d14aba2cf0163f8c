"""The decode loop of llama.cpp with a grammar, measured and verified."""
