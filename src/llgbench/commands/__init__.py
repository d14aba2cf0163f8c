"""The commands, a module each; cli.py puts them together.

A command imports what it needs when it runs, so that ``llgbench --help`` stays quick.
"""
