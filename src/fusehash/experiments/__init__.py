"""Experiments from a specification: raw results that outlive the process, then tables and figures from them alone."""
