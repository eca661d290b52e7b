"""Methods built from a sentence or an abstract, because neither the paper nor its authors' code was at hand.

Each class names the parts that are known; everything else is this project's. A result of such a method says something
about the idea, not about the publication.
"""
