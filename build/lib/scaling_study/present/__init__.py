"""Presentation: records into figures, tables and the paper. Nothing here measures; heavy imports stay in the modules."""
