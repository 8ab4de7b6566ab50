"""What `mariadb/histories` is made of."""
