"""A server whose imports fail."""

raise OSError("libmissing.so: cannot open shared object file")
