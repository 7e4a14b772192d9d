"""Decides which waiting job starts where and who makes room for it. Pure: no clock, no I/O, no chance."""
