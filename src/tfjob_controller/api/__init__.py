"""The kinds that this operator reads and writes, as data: types, defaults, validation. No I/O."""
