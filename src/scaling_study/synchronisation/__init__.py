"""Synchronisation of ranks: what arrivals say of lost time, and the controller of pacing. No torch, no clock.

Measured runs and the simulated fabric use the same two modules, so that a number means one thing in both.
"""
