"""Numerical building blocks; nothing here knows about views or methods."""
