"""How fast the stack itself is: its own ratios beside the targets, against a stub server and a real one."""
