"""Presentation: records into figures, tables and the paper. It measures nothing and needs no torch."""
