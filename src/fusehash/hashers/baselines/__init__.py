"""Published methods, built from their papers and from code of their authors."""
