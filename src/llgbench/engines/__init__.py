"""Shared libraries with llguidance's C API: how they are brought, built and kept."""
