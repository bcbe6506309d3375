"""The half of a bundle's code that runs on the sealed machine: Python 3.8 or newer and its standard library, nothing else.

The bundle carries it as `unbundle.pyz`, a zip of these sources, uncompressed so that they can be read in it. A clone runs
`python3 -m bench.sealed.unpacker`.
"""
