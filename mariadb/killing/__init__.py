"""Load that is killed, and what must be there afterwards: the parts of `mariadb/kill`."""
