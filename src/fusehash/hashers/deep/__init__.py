"""Deep methods on features: two small networks each, learned with PyTorch, encoded with NumPy."""
