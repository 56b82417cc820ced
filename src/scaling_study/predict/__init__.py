"""The performance model: what a run would take on hardware that nobody here has, from first principles. No torch."""
