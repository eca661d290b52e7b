"""What a search asks for: the query language, the words of captions, filters, and what a score means."""
