"""All metadata is in pyproject.toml; only cffi's extension needs to be named here."""

from setuptools import setup

setup(cffi_modules=["src/llgbench/_native_build.py:ffibuilder"])
