"""`make doctor`: what works on this machine and what does not, each line with its remedy. A check is a row of table.py."""
