"""Facts about hardware and drivers, as data files with loaders. Standard library only."""
