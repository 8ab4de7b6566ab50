"""What `mariadb/fuzz` is made of."""
