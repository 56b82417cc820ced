"""One small module a figure: a pure function from records to a chart, and the claims that the figure supports."""
