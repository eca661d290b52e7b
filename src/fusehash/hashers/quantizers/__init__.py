"""Quantizers of given embeddings, as databases use them: they copy the float ranking and learn nothing from pairs."""
