"""Faults: plan them, inject them, and measure how long writes stop."""
