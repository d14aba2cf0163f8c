"""Everything that touches llama.cpp: its library, a vocabulary, the bridge, the sampler, models."""
